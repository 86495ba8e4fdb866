package engine

import (
	"fmt"
	"syscall"
)

// RateLimit is how fast the device sends what a raw packet queue pair has posted
// (ibv_modify_qp_rate_limit). The zero value is no limit. It is set by Modify
// with AttrRateLimit, from RTR to RTS and in RTS.
type RateLimit struct {
	Kbps uint32 // 1000 bit/s of frames, without FCS, preamble and gap; 0: no limit
	// BurstBytes is how much may leave at once; 0: the device chooses. It counts
	// frames of the typical size: longer ones may go beyond it by the difference.
	BurstBytes   uint32
	TypicalBytes uint16 // of a frame; 0: as long as the MTU allows
}

// check judges a limit that is to be set (L-02, L-04).
func (r *RateLimit) check(c *Caps) error {
	switch {
	case r.Kbps == 0 && (r.BurstBytes != 0 || r.TypicalBytes != 0):
		return fmt.Errorf("burst of %d bytes and frames of %d without a rate: %w", r.BurstBytes, r.TypicalBytes, syscall.EINVAL)
	case r.Kbps == 0:
		return nil
	case c.MaxRateKbps == 0:
		return fmt.Errorf("rate of %d kbit/s: the device does not limit rates: %w", r.Kbps, syscall.EINVAL)
	case r.Kbps < c.MinRateKbps || r.Kbps > c.MaxRateKbps:
		return fmt.Errorf("rate of %d kbit/s: must be 0 or from %d to %d: %w", r.Kbps, c.MinRateKbps, c.MaxRateKbps, syscall.EINVAL)
	case !c.RateBurst && (r.BurstBytes != 0 || r.TypicalBytes != 0):
		return fmt.Errorf("burst of %d bytes and frames of %d: the device chooses them: %w", r.BurstBytes, r.TypicalBytes, syscall.EINVAL)
	}
	return nil
}
