// Package liveframes is a source of frames for receive tests, faster than any socket.
//
//	BPF_PROG_TEST_RUN, live ─▶ page-pool frame ─▶ XDP program: XDP_TX ─▶ interface ─▶ its veth peer's NAPI
//	      one system call, repeated in the kernel, 64 frames a batch
//
// The kernel runs an XDP program over copies of one frame and, with BPF_F_TEST_XDP_LIVE_FRAMES (Linux 5.18), carries
// out its verdict: no socket, no skb, and no return to the program that asked until the call ends. The price is that
// every frame is the same, that the calling thread is busy in the kernel, and that the peer of a veth must have NAPI,
// which an XDP program or receive offload (GRO) turns on.
//
// It needs root. AttachDrop is the counterpart that counts and drops.
package liveframes
