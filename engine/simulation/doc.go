// Package simulation runs two devices on a loop through random histories and compares them with a dull model.
// It has tests only.
//
//	seed ─▶ world ─▶ actions: post, poll, progress, modify, deregister, destroy, attach, time
//	          │
//	   side A │                                            side B
//	   engine.Device ─ ring ─ softnic ─ tap ─ loop ─ tap ─ softnic ─ ring ─ engine.Device
//	          ▲                          │     (loss, dup, reorder,  │               ▲
//	          │   what the NIC sent ─────┘      delay, speed, queue) └─ what arrived │
//	          └───────────────────────────── model ──────────────────────────────────┘
//
// The rings are tiny: 2 to 16 send slots, 1 to 8 receive entries, 2 to 32 completion entries, a wire of a few
// frames. Time is virtual and one goroutine does everything, so that a seed is the whole history.
//
// The model keeps, for each queue, the list of requests outstanding. The tap tells it what really went over the
// wire. After every action it checks:
//
//   - each request is retired exactly once, in order, by a completion of its own or of a later one;
//   - a signaled or failed request has exactly one completion, any other has none;
//   - a datagram's frame is, to the bit, what a dull encoder makes of its request and PSN, and a received one has the
//     headers, payload, source, immediate and solicited bit of a frame with a right ICRC that arrived for it;
//   - a send succeeded if and only if its frame went to the wire, with exactly its bytes, in the order of posting;
//   - a receive has the bytes of a frame that arrived, in order, and that a rule of its queue pair wants;
//   - nothing else is written: buffers of sends are unchanged, guard bytes and unused room keep their pattern;
//   - statuses and refusals are those that the request deserves, states move along legal edges only;
//   - a receive's completion names the entry that was filled;
//   - requests of a shared receive queue are taken in the order of posting, whichever queue pair gets them, and are not
//     flushed with one; its limit is told once, when fewer are left; each asynchronous event has its cause;
//   - in the end frames sent = frames delivered + the drop counters, bytes likewise where no frame was copied;
//   - requests posted = executed + failed + flushed + those that RESET or destruction took away.
//
// What the whole run has seen is counted and asserted: each drop reason, edge, status, refusal, wrap, full ring and
// overrun.
//
// That the model would see a fault is proved by mutants: TestMutants builds the simulation over sources of ring,
// engine and softnic in which single statements have a wrong twin (go test -overlay, the sources themselves stay as
// they are), and runs it once for each. Every mutant must be caught within 1000 histories, which the same program
// without a fault must pass. A statement that is changed takes its mutant along: the test says which.
//
//	go test ./engine/simulation                       the short form
//	go test ./engine/simulation -seeds 10000          more of it; BLUERING_SIM_SEEDS says the same
//	go test ./engine/simulation -run Mutants -v       after how many histories each mutant is caught, and by what
//	go test ./engine/simulation -seed 4711 -v         one history, with each action
package simulation
