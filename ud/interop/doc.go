// Package interop holds package ud's Listen and Dial against the C programs of
// others on kernel rxe, in a virtual machine: ibv_ud_pingpong, ib_send_lat and
// ib_send_bw, as clients and as servers. The test of command udecho does so with
// the built program, over all devices and address families. Tests only; make vm
// runs them.
package interop
