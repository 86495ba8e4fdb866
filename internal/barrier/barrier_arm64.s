//go:build !purego

#include "textflag.h"

// The immediates are the barrier's domain and kind: 2 is outer shareable,
// stores; 1 is outer shareable, loads.

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	DMB $2
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	DMB $1
	RET

// func FlushWC()
TEXT ·FlushWC(SB), NOSPLIT, $0-0
	DSB $2
	RET

// func StoreDoorbell(reg *uint64, v uint64)
TEXT ·StoreDoorbell(SB), NOSPLIT, $0-16
	MOVD reg+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET
