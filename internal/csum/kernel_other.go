//go:build !amd64 || purego

package csum

// There is no kernel but the one in Go, and the compiler leaves out what asks for another.
const kernel = generic

const leastSum, leastCopy, leastTrain, chunk = 0, 0, 0, 0

func has(k kind) bool { return k == generic }

// Nothing calls these.
func sumKernel([]byte) uint64                                                    { return 0 }
func copyKernel([]byte, []byte) uint64                                           { return 0 }
func sumAVX512(*byte, int) uint64                                                { return 0 }
func copyAVX512(_, _ *byte, _ int) uint64                                        { return 0 }
func trainAVX512(_ *[]byte, _ int, _ *byte, _ int, _ *byte, _ int, _ *[9]uint64) {}
