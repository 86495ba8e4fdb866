//go:build !purego

#include "textflag.h"

// func FlushWC()
TEXT ·FlushWC(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func StoreDoorbell(reg *uint64, v uint64)
TEXT ·StoreDoorbell(SB), NOSPLIT, $0-16
	MOVQ reg+0(FP), AX
	MOVQ v+8(FP), BX
	MOVQ BX, (AX)
	RET
