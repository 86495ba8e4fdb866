package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/vmtest"
	"github.com/bluering/bluering/ud/exchange"
)

// TestKernelRXETakesDatagrams: ib_send_bw on kernel rxe gets every datagram that pktgen sends to its queue pair, whatever
// the payload's length, the source port and, over packet:, the source address; the kernel counts as many, which it does
// behind its checks of Q_Key and ICRC, and none with another Q_Key.
func TestKernelRXETakesDatagrams(t *testing.T) {
	vm := vmtest.Start(t, vmtest.Config{Tap: true, RXE: true})
	for _, r := range []struct {
		name, device, host, guest string
		payload                   int
		more                      string
	}{
		{"packet IPv4", "packet:" + vm.Tap, vmtest.HostAddr4, vmtest.GuestAddr4, 17, "--src 192.0.2.1,192.0.2.77-192.0.2.99 --sport 49152-65535:rand"},
		{"packet IPv6", "packet:" + vm.Tap, vmtest.HostAddr6, vmtest.GuestAddr6, 1024, "--src fd00:b1::1-fd00:b1::ffff --sport 49152-65535:rand --flow-label 0-1048575:rand"},
		{"udp IPv4", "udp:" + vmtest.HostAddr4 + "?ports=8", vmtest.HostAddr4, vmtest.GuestAddr4, 66, "--flows 8"},
		{"udp IPv6", "udp:" + vmtest.HostAddr6, vmtest.HostAddr6, vmtest.GuestAddr6, 19, "--queues 2 --psn 0xfffff0"},
	} {
		t.Run(r.name, func(t *testing.T) {
			const count, whole = 1000, 2 * time.Minute // on a machine that does much else
			ctx, cancel := context.WithTimeout(context.Background(), whole)
			defer cancel()
			program := []string{"ib_send_bw", "-d", "rxe0", "-c", "UD", "-F", "-x", fmt.Sprint(vm.GIDIndex(t, "rxe0", r.guest)),
				"-s", fmt.Sprint(r.payload), "-n", fmt.Sprint(count), "-r", fmt.Sprint(count)}
			if netip.MustParseAddr(r.guest).Is6() {
				program = append(program, "--ipv6") // of the GID
			}
			server := vm.Spawn(whole, program...)
			vm.AwaitListener(t, whole, server, exchange.Port)
			conn, err := net.Dial("tcp", net.JoinHostPort(vmtest.GuestAddr4, fmt.Sprint(exchange.Port)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			s, err := exchange.Perftest{}.Client(ctx, conn, exchange.Info{QPN: 0x11, QKey: exchange.DefaultQKey, MTU: 1024, GID: netip.MustParseAddr(r.host).As16()})
			if err == nil {
				err = s.Sync(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			send := func(n int, qkey string) {
				t.Helper()
				args := []string{"tx", r.device, "--proto", "roce-ud", "--qpn", fmt.Sprint(s.Theirs.QPN), "--qkey", qkey, "--dst", r.guest,
					"--payload", fmt.Sprint(r.payload), "-n", fmt.Sprint(n), "-r", "1kpps", "-i", "0", "-o", "none"} // nobody can refuse a datagram
				if code, _, stderr := pktgen(append(args, strings.Fields(r.more)...)...); code != 0 {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
			}
			before := vm.RXECounters(t, "rxe0")["rcvd_pkts"]
			send(100, "0x11111112")
			send(count, "0x11111111")
			if err := s.Finish(ctx); err != nil { // the program's, when it has had all
				t.Error(err)
			}
			if out, exit, err := server.Wait(); exit != 0 || err != nil {
				t.Errorf("exit %d, %v: %s", exit, err, out)
			}
			if n := vm.RXECounters(t, "rxe0")["rcvd_pkts"] - before; n != count {
				t.Errorf("kernel rxe counts %d packets, want %d", n, count)
			}
		})
	}
}
