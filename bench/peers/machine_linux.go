package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/unix"
)

// describe names the machine and the versions of the programs that take part.
func describe(b *bench, programs []program) machine {
	m := machine{
		CPU: cpuid.CPU.BrandName, CPUs: runtime.NumCPU(), UsedCPUs: []int{b.cpu, b.otherCPU},
		Go: runtime.Version(), Versions: map[string]string{}, HugePages: b.huge, LoadBefore: load(),
	}
	slices.Sort(m.UsedCPUs)
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	for _, p := range programs {
		if names := packages[p]; len(names) > 0 && b.paths[p] != "" {
			if v := installed(names[0]); v != "" {
				m.Versions[names[0]] = v
			}
		}
	}
	return m
}

// installed is the version of a Debian package, if there is one.
func installed(name string) string {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", name).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

// usage is how the processors' time was spent since the machine started, in seconds.
type usage struct {
	total, idle, steal float64
	own                float64 // of this process and of its children that have ended
}

// ticksPerSecond is USER_HZ, the unit of /proc/stat, the same on all that Go runs on.
const ticksPerSecond = 100

func readUsage() (u usage, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	// user nice system idle iowait irq softirq steal (proc(5)); guest time is in user.
	var t [8]float64
	if _, err := fmt.Sscanf(string(text), "cpu %g %g %g %g %g %g %g %g", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]); err != nil {
		return u, fmt.Errorf("/proc/stat: %w", err)
	}
	for _, v := range t {
		u.total += v / ticksPerSecond
	}
	u.idle, u.steal = (t[3]+t[4])/ticksPerSecond, t[7]/ticksPerSecond
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			return u, err
		}
		u.own += float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	return u, nil
}

// since fills in what others took.
func (m *machine) since(before, after usage) {
	total := after.total - before.total
	if total <= 0 {
		return
	}
	busy := total - (after.idle - before.idle) - (after.steal - before.steal)
	m.Others = max(0, busy-(after.own-before.own)) / total
	m.Steal = (after.steal - before.steal) / total
}
