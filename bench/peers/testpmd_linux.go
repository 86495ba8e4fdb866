package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pmd is one testpmd.
type pmd struct {
	mainCPU, cpu int // cpu forwards
	prefix       string
	vdevs        []string
	mode         string
	options      []string // of the application, after --
}

// pmdRun is one that forwards.
type pmdRun struct {
	*process
	ports int
	read  int // of its output
}

// What testpmd 22.11 says. Both sums of a port's statistics stand in one match.
var (
	pmdReady = regexp.MustCompile(`forwards packets on \d+ streams`)
	pmdStats = regexp.MustCompile(`RX-packets: (\d+)[^#]*?TX-packets: (\d+)[^#]*?####`)
)

// startPMD returns when testpmd forwards.
func (b *bench) startPMD(ctx context.Context, c pmd) (*pmdRun, error) {
	args := []string{
		"-l", fmt.Sprintf("%d,%d", min(c.cpu, c.mainCPU), max(c.cpu, c.mainCPU)),
		"--main-lcore=" + strconv.Itoa(c.mainCPU), "--no-pci", "--no-telemetry", "--file-prefix=" + c.prefix,
	}
	if b.huge {
		args = append(args, "--in-memory", "-m", "256")
	} else {
		args = append(args, "--no-huge", "--no-shconf", "-m", "256")
	}
	for _, v := range c.vdevs {
		args = append(args, "--vdev="+v)
	}
	args = append(args, "--", "-i", "--auto-start", "--forward-mode="+c.mode, "--total-num-mbufs=8192",
		"--no-lsc-interrupt", "--disable-link-check")
	args = append(args, c.options...)
	// Lines are to come when they are written, not when a buffer is full.
	p, err := b.start(ctx, "/usr/bin/stdbuf", append([]string{"-oL", b.paths[testpmd]}, args...)...)
	if err != nil {
		return nil, err
	}
	p.name, p.command = testpmd.name, strings.Join(append([]string{testpmd.name}, args...), " ")
	r := &pmdRun{process: p, ports: len(c.vdevs)}
	if r.read, _, err = p.await(ctx, 0, pmdReady, 1); err != nil {
		p.stop()
		return nil, err
	}
	return r, nil
}

// count asks for the sums over all ports.
func (r *pmdRun) count(ctx context.Context) (rx, tx uint64, err error) {
	if _, err := fmt.Fprintln(r.in, "show port stats all"); err != nil {
		return 0, 0, r.failure(err)
	}
	end, found, err := r.await(ctx, r.read, pmdStats, r.ports)
	if err != nil {
		return 0, 0, err
	}
	r.read = end
	for _, m := range found {
		a, errA := strconv.ParseUint(m[0], 10, 64)
		b, errB := strconv.ParseUint(m[1], 10, 64)
		if errA != nil || errB != nil {
			return 0, 0, fmt.Errorf("testpmd counts %q and %q packets", m[0], m[1])
		}
		rx, tx = rx+a, tx+b
	}
	return rx, tx, nil
}

// quit ends it in the way it knows.
func (r *pmdRun) quit() {
	fmt.Fprintln(r.in, "quit")
	select {
	case <-r.ended:
	case <-time.After(grace):
		r.stop()
	}
}

// window measures how far a counter gets in b.window, after a tenth of that to get warm.
func (b *bench) measure(ctx context.Context, count func() (uint64, error)) (s sample, err error) {
	if err := pause(ctx, b.window/10); err != nil {
		return s, err
	}
	first, err := count()
	if err != nil {
		return s, err
	}
	start := time.Now()
	if err := pause(ctx, b.window); err != nil {
		return s, err
	}
	last, err := count()
	return sample{packets: last - first, elapsed: time.Since(start)}, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// runNullIO forwards between two ports that copy what they give and take, 64 bytes each.
func runNullIO(ctx context.Context, b *bench) (sample, error) {
	r, err := b.startPMD(ctx, pmd{
		mainCPU: b.otherCPU, cpu: b.cpu, prefix: "peersnull", mode: "io",
		vdevs: []string{"net_null0,copy=1", "net_null1,copy=1"},
	})
	if err != nil {
		return sample{}, err
	}
	defer r.quit()
	s, err := b.measure(ctx, func() (uint64, error) {
		_, tx, err := r.count(ctx)
		return tx, err
	})
	s.command = r.command
	return s, err
}

// runMemif sends from one process to another by shared memory. The receiver counts.
func runMemif(ctx context.Context, b *bench) (sample, error) {
	socket := filepath.Join(b.dir, fmt.Sprintf("memif%d", b.runs))
	rx, err := b.startPMD(ctx, pmd{
		mainCPU: b.cpu, cpu: b.otherCPU, prefix: "peersrx", mode: "rxonly",
		vdevs: []string{"net_memif0,role=server,id=0,socket=" + socket + ",socket-abstract=no"},
	})
	if err != nil {
		return sample{}, err
	}
	defer rx.quit()
	tx, err := b.startPMD(ctx, pmd{
		mainCPU: b.otherCPU, cpu: b.cpu, prefix: "peerstx", mode: "txonly",
		vdevs:   []string{"net_memif0,role=client,id=0,socket=" + socket + ",socket-abstract=no"},
		options: []string{"--txpkts=" + strconv.Itoa(frameBytes)},
	})
	if err != nil {
		return sample{}, err
	}
	defer tx.quit()
	count := func() (uint64, error) {
		n, _, err := rx.count(ctx)
		return n, err
	}
	for n := uint64(0); n == 0; { // until they have found each other
		if n, err = count(); err != nil {
			return sample{}, err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return sample{}, fmt.Errorf("no packet has arrived: %w", err)
		}
	}
	s, err := b.measure(ctx, count)
	s.command = rx.command + "; " + tx.command
	return s, err
}
