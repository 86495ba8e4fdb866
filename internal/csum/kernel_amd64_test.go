//go:build !purego

package csum

// sumWith and copyWith run one kernel, whatever is chosen and however short the buffer.
func sumWith(k kind, b []byte) uint32 {
	if k != generic {
		return finishLE(runSum(k, b), 0)
	}
	defer func(chosen kind) { kernel = chosen }(kernel)
	kernel = generic
	return Sum(b, 0)
}

func copyWith(k kind, dst, src []byte) uint32 {
	if k != generic {
		return finishLE(runCopy(k, dst, src), 0)
	}
	return finishLE(copyWords(dst, src), 0)
}
