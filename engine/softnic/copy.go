package softnic

// copyFrame copies src to the front of dst, which is at least as long. Up to 128 bytes it is two overlapping
// runs of 16-byte array copies, which the compiler turns into vector moves (larger arrays become a call of
// memmove, because they might overlap). It writes exactly len(src) bytes: those behind a received frame stay
// the application's.
func copyFrame(dst, src []byte) {
	if isSmall(src) {
		copySmall(dst, src)
		return
	}
	copyOther(dst, src)
}

// isSmall reports whether copySmall is for the frame. Both are inlined, for the loops over a burst.
func isSmall(src []byte) bool { return uint(len(src))-32 <= 32 }

// copySmall is copyFrame for 32 to 64 bytes.
func copySmall(dst, src []byte) {
	d, s := dst[len(src)-32:], src[len(src)-32:]
	copy32((*[32]byte)(dst), (*[32]byte)(src))
	copy32((*[32]byte)(d), (*[32]byte)(s))
}

func copyOther(dst, src []byte) {
	n := len(src)
	switch {
	case n > 128:
		copy(dst, src)
	case n > 64:
		copy64((*[64]byte)(dst), (*[64]byte)(src))
		copy64((*[64]byte)(dst[n-64:]), (*[64]byte)(src[n-64:]))
	case n >= 16:
		*(*[16]byte)(dst) = *(*[16]byte)(src)
		*(*[16]byte)(dst[n-16:]) = *(*[16]byte)(src[n-16:])
	default:
		copy(dst, src)
	}
}

func copy32(d, s *[32]byte) {
	*(*[16]byte)(d[0:16]) = *(*[16]byte)(s[0:16])
	*(*[16]byte)(d[16:32]) = *(*[16]byte)(s[16:32])
}

func copy64(d, s *[64]byte) {
	*(*[16]byte)(d[0:16]) = *(*[16]byte)(s[0:16])
	*(*[16]byte)(d[16:32]) = *(*[16]byte)(s[16:32])
	*(*[16]byte)(d[32:48]) = *(*[16]byte)(s[32:48])
	*(*[16]byte)(d[48:64]) = *(*[16]byte)(s[48:64])
}
