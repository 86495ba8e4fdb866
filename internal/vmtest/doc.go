// Package vmtest boots Debian's own kernel in a small virtual machine, so that
// tests have kernel rxe as their peer, on any machine, whatever modules its
// kernel has.
//
//	test process, in a network namespace of its own          virtual machine
//	  Machine.Run ── virtio-serial, JSON lines ──────────────▶ agent: this test binary again
//	  tap vm0  192.0.2.1, fd00:b1::1 ── Ethernet ────────────▶ eth0, rxe0
//	  root file system ── 9p, read-only, under an overlay ───▶ its root: our binaries, ibv_ud_pingpong, perftest
//
// The kernel is a package that apt downloads and dpkg unpacks into the user's
// cache; nothing is installed. Main prepares it before it enters the namespace:
//
//	func TestMain(m *testing.M) { vmtest.Main(m) }
//
//	func TestPeer(t *testing.T) {
//		vm := vmtest.Start(t, vmtest.Config{Tap: true, RXE: true})
//		out := vm.Run(t, 30*time.Second, "rdma", "link")
//		...
//	}
//
// Booting takes seconds, so the tests of this package's users run only where
// the environment variable BLUERING_VM is set, as "make vm" does. There, a
// machine without qemu or without the packages skips with the reason, which is
// a failure where "vm" is promised. Test support: no command imports it.
package vmtest
