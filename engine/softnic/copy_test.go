package softnic

import (
	"bytes"
	"testing"
)

func TestCopyFrameWritesExactlyTheFrame(t *testing.T) {
	src := make([]byte, 300)
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	for n := range 300 {
		for shift := range 8 {
			dst := bytes.Repeat([]byte{0xa5}, 320)
			copyFrame(dst[shift:], src[:n])
			if !bytes.Equal(dst[shift:shift+n], src[:n]) {
				t.Fatalf("length %d at offset %d: wrong bytes", n, shift)
			}
			for i, b := range dst {
				if (i < shift || i >= shift+n) && b != 0xa5 {
					t.Fatalf("length %d at offset %d: byte %d was touched", n, shift, i-shift)
				}
			}
		}
	}
}

func BenchmarkCopyFrame(b *testing.B) {
	src, dst := make([]byte, 2048), make([]byte, 2048)
	b.Run("size=60", func(b *testing.B) {
		for b.Loop() {
			copyFrame(dst, src[:60])
		}
	})
}
