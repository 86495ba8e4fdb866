// Package interop holds package ud against the C programs of others on kernel
// rxe, in a virtual machine: ibv_ud_pingpong, ib_send_lat and ib_send_bw, as
// clients and as servers, over IPv4 and IPv6, with our side on an unprivileged
// UDP socket and on a packet socket. Tests only; make vm runs them.
package interop
