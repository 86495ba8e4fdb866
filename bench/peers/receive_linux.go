package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/bench/liveframes"
)

// receiveOffload turns on GRO at the far end, and with it the NAPI that live frames need. Frames like ours, all alike
// and not TCP, are not merged.
func (b *bench) receiveOffload() error {
	out, err := exec.Command(b.paths[ethtool], "-K", farEnd, "gro", "on").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ethtool -K %s gro on: %w: %s", farEnd, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func runPktgenReceive(uri string) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (sample, error) {
		return b.underFire(ctx, func(ctx context.Context, _ int) (s sample, err error) {
			// The source has the other processor to itself.
			p, err := b.startOn(ctx, []int{b.cpu}, b.paths[pktgen], "rx", uri, "--no-tag",
				"--duration", b.window.String(), "--interval", "0", "--output", "json")
			if err != nil {
				return s, err
			}
			s.command = p.command
			r, err := p.report()
			s.packets, s.elapsed = r.Received, time.Duration(r.ElapsedNS)
			return s, err
		})
	}
}

func runTestpmdReceive(vdev string) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (sample, error) {
		return b.underFire(ctx, func(ctx context.Context, _ int) (s sample, err error) {
			r, err := b.startPMD(ctx, pmd{mainCPU: b.otherCPU, cpu: b.cpu, prefix: "peersrx", mode: "rxonly", vdevs: []string{vdev}})
			if err != nil {
				return s, err
			}
			defer r.quit()
			s, err = b.measure(ctx, func() (uint64, error) {
				n, _, err := r.count(ctx)
				return n, err
			})
			s.command = r.command
			return s, err
		})
	}
}

// runDrop counts what a program in the far interface's driver drops: what the source sends at most.
func runDrop(ctx context.Context, b *bench) (sample, error) {
	return b.underFire(ctx, func(ctx context.Context, far int) (s sample, err error) {
		drop, err := liveframes.AttachDrop(far)
		if err != nil {
			return s, err
		}
		defer drop.Close()
		s, err = b.measure(ctx, (&veth{far: far}).received)
		s.command = "an XDP program on the interface, counted by it"
		return s, err
	})
}

// Geometry of the ring: 32 blocks of 256 KiB, handed over when full or 1 ms old, the shortest the kernel knows.
const (
	v3Block  = 256 << 10
	v3Blocks = 32
	v3Frame  = 2048
)

// runRingV3 receives with the ring that most capture programs use, TPACKET_V3, and reads each frame's length and
// first bytes: as little as a receiver can do.
func runRingV3(ctx context.Context, b *bench) (sample, error) {
	return b.underFire(ctx, func(ctx context.Context, far int) (s sample, err error) {
		s.command = fmt.Sprintf("in process, cpu %d: TPACKET_V3, %d blocks of %d KiB, spinning", b.cpu, v3Blocks, v3Block>>10)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return s, err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
			return s, err
		}
		req := unix.TpacketReq3{
			Block_size: v3Block, Block_nr: v3Blocks, Frame_size: v3Frame, Frame_nr: v3Block / v3Frame * v3Blocks,
			Retire_blk_tov: 1,
		}
		if err := unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
			return s, err
		}
		mem, err := unix.Mmap(fd, 0, v3Block*v3Blocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return s, err
		}
		defer unix.Munmap(mem)
		const allProtocols = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: far}); err != nil {
			return s, err
		}
		at := 0
		err = pinned(b.cpu, func() error {
			return s.repeat(ctx, b.window, func() (n int, err error) {
				for range between {
					got := v3Take(mem[at*v3Block : (at+1)*v3Block])
					if got > 0 {
						at = (at + 1) % v3Blocks
					}
					n += got
				}
				return n, nil
			})
		})
		return s, err
	})
}
