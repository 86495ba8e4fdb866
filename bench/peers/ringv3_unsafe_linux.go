package main

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the fields are in a block and in a frame (linux/if_packet.h: tpacket_block_desc with tpacket_hdr_v1,
// tpacket3_hdr).
const (
	v3Status   = 8
	v3NumPkts  = 12
	v3First    = 16
	v3Next     = 0
	v3Snaplen  = 12
	v3MAC      = 24 // 16 bits
	v3Seen     = 14 // bytes of each frame that are read
	v3HdrBytes = 48
)

// v3Take looks at all frames of a block that the kernel has filled, gives it back and returns how many they were; 0 when
// it is the kernel's.
func v3Take(block []byte) (frames int) {
	// The status is aligned, because blocks are pages; its partner is the kernel, which stores it last.
	status := (*atomic.Uint32)(unsafe.Pointer(&block[v3Status]))
	if status.Load()&unix.TP_STATUS_USER == 0 {
		return 0
	}
	frames = int(binary.NativeEndian.Uint32(block[v3NumPkts:]))
	at := int(binary.NativeEndian.Uint32(block[v3First:]))
	for range frames {
		h := block[at : at+v3HdrBytes]
		mac := int(binary.NativeEndian.Uint16(h[v3MAC:]))
		v3Sum += uint64(binary.NativeEndian.Uint32(h[v3Snaplen:])) + uint64(block[at+mac+v3Seen-1])
		at += int(binary.NativeEndian.Uint32(h[v3Next:]))
	}
	status.Store(unix.TP_STATUS_KERNEL)
	return frames
}

// v3Sum keeps the compiler from leaving the reading out.
var v3Sum uint64
