//go:build race

package traffic

// All are smaller here: a loop is 20 times slower, and the run beyond the window takes 1,024 frames of each flow.
const (
	manyFlows  = 100
	fullCount  = 20_011
	amongCount = 90_001
	soakCount  = 100_003
	soakRoom   = 256 << 20 // the detector's own memory is resident, too
)
