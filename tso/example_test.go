package tso_test

import (
	"errors"
	"fmt"

	"github.com/bluering/bluering/tso"
)

// header is Ethernet, IPv4 and TCP, with PSH and ACK set.
var header = []byte{
	2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
	0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
	0x10, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0,
}

func ExamplePlan() {
	payload := []byte("three thousand bytes, or a few less")
	var plan tso.Plan
	if err := plan.Make(header, len(payload), 14); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Segments(), "segments")
	frame := make([]byte, plan.MaxFrame())
	s := plan.Segmenter(header)
	for n := s.Write(frame, payload); n > 0; n = s.Write(frame, payload) {
		fmt.Printf("id %d seq %#x flags %#02x %q\n", frame[19], frame[40:42], frame[47], frame[54:n])
	}
	// Output:
	// 3 segments
	// id 7 seq 0x1000 flags 0x10 "three thousand"
	// id 8 seq 0x100e flags 0x10 " bytes, or a f"
	// id 9 seq 0x101c flags 0x18 "ew less"
}

// A caller whose payload lies in pieces copies and sums them itself.
func ExampleSegmenter() {
	var plan tso.Plan
	if err := plan.Make(header, 35, 14); err != nil {
		fmt.Println(err)
		return
	}
	frame := make([]byte, plan.MaxFrame())
	s := plan.Segmenter(header)
	var g tso.Segment
	for s.Next(&g) {
		s.Put(frame, &g, 0) // the sum of a payload of zeros
		fmt.Printf("segment %d: payload %d to %d in a frame of %d bytes\n", g.Index, g.From, g.To, s.FrameLen(&g))
	}
	// Output:
	// segment 0: payload 0 to 14 in a frame of 68 bytes
	// segment 1: payload 14 to 28 in a frame of 68 bytes
	// segment 2: payload 28 to 35 in a frame of 61 bytes
}

func ExampleRefusal() {
	var plan tso.Plan
	err := plan.Make(header[:50], 35, 14)
	var r *tso.Refusal
	if errors.As(err, &r) && r.Cause == tso.CauseShort {
		fmt.Println(err)
	}
	// Output:
	// tso: header of 50 bytes, want 54
}
