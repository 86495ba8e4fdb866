// Package nstest gives tests network namespaces of their own, without privileges where the system allows it.
//
//	TestMain ── nstest.Main ──► the test binary again, in new network and mount namespaces
//	                              │  own namespace: lo, a          ← where the tests run
//	                              └─ /run/netns/NAME: lo, b        ← nstest.Veth, nstest.Namespace
//
// The new process has a private /run, so that named namespaces, and all interfaces in them, vanish with it,
// however it ends. An ordinary user becomes root of a user namespace, which is enough for packet sockets.
//
//	func TestMain(m *testing.M) { nstest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		a, b, ns := nstest.Veth(t) // a: here; b: in the namespace ns, which "ip -n", too, knows
//		before := nstest.Count(t, ns, b)
//		...
//	}
//
// Where namespaces cannot be made the tests that ask for one are skipped, as those are that ask for a program which the
// machine lacks. The reason begins with "needs NAME:", which internal/testrun makes a failure where NAME is promised.
// Test support: no command imports it.
package nstest
