package wire

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The kernel answers for the host and keeps the neighbour table, for which it must see ARP and ICMPv6 neighbour
// discovery. So as soon as a wire is used as an end of a network, its program leaves those to the kernel; before, as
// for raw frames alone, it takes everything.

// NextHop is that of every interface, once the kernel sees the answers.
func (w *xdp) NextHop(ctx context.Context, to netip.Addr) ([6]byte, error) {
	if err := w.leaveNeighbours(); err != nil {
		return [6]byte{}, err
	}
	return w.iface.NextHop(ctx, to)
}

// HoldRoCE lets the kernel answer who asks for the host. Datagrams it does not see.
func (w *xdp) HoldRoCE() error { return w.leaveNeighbours() }

// leaveNeighbours changes the program, in one step: no frame passes by.
func (w *xdp) leaveNeighbours() error {
	n := &w.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || w.leaves {
		return nil
	}
	prog, err := w.neighbourProgram()
	if err == nil {
		err = w.link.Update(prog)
		if err != nil {
			prog.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("wire: %s%s: leave ARP and neighbour discovery to the kernel: %w", w.info.Name, w.where(), err)
	}
	old := w.prog
	w.prog, w.leaves = prog, true
	return old.Close()
}

// neighbourProgram is, in C, with bounds checked:
//
//	if (eth->h_proto == ARP || eth->h_proto == IPV6 && ip6->nexthdr == ICMPV6 && type >= 133 && type <= 137)
//		return XDP_PASS;
//	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
func (w *xdp) neighbourProgram() (*ebpf.Program, error) {
	const (
		data, dataEnd          = 0, 4       // in struct xdp_md of linux/bpf.h
		etherType, nextHeader  = 12, 14 + 6 // in the frame
		icmpType               = 14 + 40
		icmpv6                 = 58
		solicitation, redirect = 133, 137 // router solicitation to redirect, RFC 4861
	)
	return w.load(
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, dataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, etherType+2),
		asm.JGT.Reg(asm.R4, asm.R3, takeFrame),
		asm.LoadMem(asm.R5, asm.R2, etherType, asm.Half),
		asm.HostTo(asm.BE, asm.R5, asm.Half),
		asm.JEq.Imm(asm.R5, unix.ETH_P_ARP, "pass"),
		asm.JNE.Imm(asm.R5, unix.ETH_P_IPV6, takeFrame),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, icmpType+1),
		asm.JGT.Reg(asm.R4, asm.R3, takeFrame),
		asm.LoadMem(asm.R5, asm.R2, nextHeader, asm.Byte),
		asm.JNE.Imm(asm.R5, icmpv6, takeFrame),
		asm.LoadMem(asm.R5, asm.R2, icmpType, asm.Byte),
		asm.JLT.Imm(asm.R5, solicitation, takeFrame),
		asm.JGT.Imm(asm.R5, redirect, takeFrame),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
		asm.Return(),
	)
}
