package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// program is something that contenders run.
type program struct {
	name string
	from string // how to get it
}

// The programs. What is installed comes by the Debian package that from names first.
var (
	testpmd   = program{"dpdk-testpmd", "package dpdk-dev, with librte-net-nullN, -memifN, -af-packetN and -af-xdpN of its version"}
	trafgen   = program{"trafgen", "package netsniff-ng"}
	tcpreplay = program{"tcpreplay", "package tcpreplay"}
	ethtool   = program{"ethtool", "package ethtool"}
	sockperf  = program{"sockperf", "package sockperf"}
	ip        = program{"ip", "package iproute2"}
	pktgen    = program{"pktgen", "go build github.com/bluering/bluering/cmd/pktgen, run in this module"}
	spin      = program{"spin", "gcc, package gcc"}
)

// packages are those to install for a program; as patterns, which apt-get takes, where a name has DPDK's version in it.
var packages = map[program][]string{
	testpmd:   {"dpdk-dev", `^librte-net-null[0-9]+$`, `^librte-net-memif[0-9]+$`, `^librte-net-af-packet[0-9]+$`, `^librte-net-af-xdp[0-9]+$`},
	trafgen:   {"netsniff-ng"},
	tcpreplay: {"tcpreplay"},
	ethtool:   {"ethtool"},
	sockperf:  {"sockperf"},
	ip:        {"iproute2"},
	spin:      {"gcc", "libc6-dev"},
}

// installTime bounds apt-get, buildTime a compiler.
const (
	installTime = 10 * time.Minute
	buildTime   = 5 * time.Minute
)

//go:embed c/spin.c
var spinSource []byte

// look finds a program also where only root's PATH leads.
func look(name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		path := filepath.Join(dir, name)
		if i, err := os.Stat(path); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// wanted are the programs of the rows, in the order of first mention.
func wanted(rows []row) (out []program) {
	for _, r := range rows {
		for _, c := range r.contenders {
			for _, p := range c.needs {
				if !slices.Contains(out, p) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// install brings what is missing of the programs, and says what could not be brought. It is for root.
func install(ctx context.Context, programs []program, say io.Writer) {
	var names []string
	for _, p := range programs {
		found := look(p.name)
		if p == spin {
			found = look("gcc")
		}
		if found == "" {
			names = append(names, packages[p]...)
		}
	}
	if len(names) == 0 {
		return
	}
	apt := look("apt-get")
	if apt == "" {
		fmt.Fprintf(say, "peers: no apt-get here to install %s\n", strings.Join(names, " "))
		return
	}
	fmt.Fprintf(say, "peers: installing %s\n", strings.Join(names, " "))
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, names...)} {
		c := exec.CommandContext(ctx, apt, append([]string{"-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // dpkg is not to be killed
		c.WaitDelay = time.Minute
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(say, "peers: apt-get %s: %v: %s\n", args[0], err, lastLine(out))
		}
	}
}

func lastLine(out []byte) string {
	s := strings.TrimSpace(string(out))
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// find makes what is made here, in dir, finds the rest, and says what is missing.
func find(ctx context.Context, programs []program, dir string, say io.Writer) map[program]string {
	paths := map[program]string{}
	for _, p := range programs {
		var err error
		switch p {
		case pktgen:
			paths[p], err = build(ctx, dir, p.name, "go", "build", "-o", filepath.Join(dir, p.name), "github.com/bluering/bluering/cmd/pktgen")
		case spin:
			paths[p], err = buildSpin(ctx, dir)
		default:
			paths[p] = look(p.name)
		}
		if paths[p] == "" {
			fmt.Fprintf(say, "peers: %s is missing: %s%s\n", p.name, p.from, because(err))
		}
	}
	return paths
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func buildSpin(ctx context.Context, dir string) (string, error) {
	source := filepath.Join(dir, "spin.c")
	if err := os.WriteFile(source, spinSource, 0o600); err != nil {
		return "", err
	}
	return build(ctx, dir, spin.name, "gcc", "-O2", "-Wall", "-o", filepath.Join(dir, spin.name), source)
}

// build runs a compiler that makes dir/name.
func build(ctx context.Context, dir, name, compiler string, args ...string) (string, error) {
	path := look(compiler)
	if path == "" {
		return "", errors.New("no " + compiler + " here")
	}
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", compiler, err, lastLine(out))
	}
	return filepath.Join(dir, name), nil
}
