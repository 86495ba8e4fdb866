package wire

import (
	"fmt"

	"github.com/bluering/bluering/internal/clock"
)

// NewImpair wraps a wire.
func NewImpair(w Wire, i Impairs, c clock.Clock) (Wire, error) {
	return nil, fmt.Errorf("%w: impairments", ErrNotBuilt)
}

func (i Impairs) forPort(port int) Impairs {
	i.Seed = i.Seed*2 + uint64(port)
	return i
}
