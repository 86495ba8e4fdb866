//go:build !race

package traffic

const (
	manyFlows  = 10_000  // the larger number of flows that the proof is for
	fullCount  = 500_009 // frames at full rate
	amongCount = 200_003 // and among look-alikes
	soakCount  = 2_000_003
	soakRoom   = 16 << 20
)
