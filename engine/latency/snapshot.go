package latency

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/bits"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// ErrGeometry is returned when snapshots of different range or precision meet.
var ErrGeometry = errors.New("latency: different range or precision")

// Snapshot is what a recorder held. The zero value is empty and merges with
// anything. It is for one goroutine.
type Snapshot struct {
	b    *buffer
	opts Options
}

// Count returns the number of values.
func (s *Snapshot) Count() uint64 {
	if s.b == nil {
		return 0
	}
	return s.b.count
}

// Clamped returns how many values lay outside the range.
func (s *Snapshot) Clamped() uint64 {
	if s.b == nil {
		return 0
	}
	return s.b.clamped
}

// Min returns the exact least value, 0 if there is none.
func (s *Snapshot) Min() int64 {
	if s.Count() == 0 {
		return 0
	}
	return s.b.min
}

// Max returns the exact greatest value, 0 if there is none.
func (s *Snapshot) Max() int64 {
	if s.Count() == 0 {
		return 0
	}
	return s.b.max
}

// Mean returns the exact mean, rounded once; 0 if there is no value.
func (s *Snapshot) Mean() float64 {
	if s.Count() == 0 {
		return 0
	}
	sum := new(big.Int).SetUint64(s.b.sumHi)
	sum.Lsh(sum, 64).Add(sum, new(big.Int).SetUint64(s.b.sumLo))
	mean, _ := new(big.Rat).SetFrac(sum, new(big.Int).SetUint64(s.b.count)).Float64()
	return mean
}

// Quantile returns the value that the share q (0 to 1) of all values does not
// exceed, to the histogram's precision and never outside [Min, Max].
func (s *Snapshot) Quantile(q float64) int64 {
	if s.Count() == 0 {
		return 0
	}
	rank := uint64(1)
	if q >= 1 {
		rank = s.b.count
	} else if q > 0 {
		rank = min(max(uint64(math.Ceil(q*float64(s.b.count))), 1), s.b.count)
	}
	if rank == s.b.count {
		return s.b.max
	}
	var seen uint64
	for i, n := range s.b.counts {
		if seen += uint64(n); seen >= rank {
			return min(max(s.upper(i), s.b.min), s.b.max)
		}
	}
	return s.b.max
}

// upper is the greatest value counted in slot i: the inverse of index.
func (s *Snapshot) upper(i int) int64 {
	halfShift := uint(bits.Len64(uint64(2*math.Pow10(s.opts.Digits))-1)) - 1
	half := 1 << halfShift
	if i < 2*half {
		return int64(i)
	}
	bucket := uint(i>>halfShift) - 1
	sub := int64(i&(half-1) + half)
	return (sub+1)<<bucket - 1
}

// Merge adds other's values to s. other stays as it is.
func (s *Snapshot) Merge(other Snapshot) error {
	if other.b == nil {
		return nil
	}
	if s.b == nil {
		*s = Snapshot{b: newBuffer(len(other.b.counts)), opts: other.opts}
	}
	if s.opts != other.opts {
		return fmt.Errorf("%w: %d ns at %d digits and %d ns at %d", ErrGeometry,
			s.opts.MaxNS, s.opts.Digits, other.opts.MaxNS, other.opts.Digits)
	}
	for i, n := range other.b.counts {
		s.b.counts[i] += n
	}
	s.b.count += other.b.count
	s.b.clamped += other.b.clamped
	s.b.min = min(s.b.min, other.b.min)
	s.b.max = max(s.b.max, other.b.max)
	lo, carry := bits.Add64(s.b.sumLo, other.b.sumLo, 0)
	s.b.sumLo, s.b.sumHi = lo, s.b.sumHi+other.b.sumHi+carry
	return nil
}

// Histogram returns a copy as an HDR histogram.
func (s *Snapshot) Histogram() *hdr.Histogram {
	o := s.opts.normal()
	e := &hdr.Snapshot{LowestTrackableValue: 1, HighestTrackableValue: o.MaxNS, SignificantFigures: int64(o.Digits)}
	if s.b != nil {
		e.Counts = s.b.counts
	}
	return hdr.Import(e)
}

// Encode returns the histogram in HDR's V2 compressed form, in base64.
func (s *Snapshot) Encode() (string, error) {
	b, err := s.Histogram().EncodeV2()
	if err != nil {
		return "", fmt.Errorf("latency: encode: %w", err)
	}
	return string(b), nil
}

// LogOptions describes an interval for a log file; times are milliseconds since
// the Unix epoch.
type LogOptions struct {
	StartMS, EndMS int64
	Tag            string // no commas, blanks or line breaks
	Comment        string // one line, may be empty
}

// WriteLog writes an HDR log (format 1.3) with s as its one interval. Values in
// it are nanoseconds; the log's own maximum column is in milliseconds.
func (s *Snapshot) WriteLog(w io.Writer, o LogOptions) error {
	h := s.Histogram()
	h.SetStartTimeMs(o.StartMS)
	h.SetEndTimeMs(o.EndMS)
	h.SetTag(o.Tag)
	log := hdr.NewHistogramLogWriter(w)
	steps := []func() error{
		func() error {
			if o.Comment == "" {
				return nil
			}
			return log.OutputComment(o.Comment)
		},
		log.OutputLogFormatVersion,
		func() error { return log.OutputStartTime(o.StartMS) },
		log.OutputLegend,
		func() error { return log.OutputIntervalHistogram(h) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("latency: write log: %w", err)
		}
	}
	return nil
}
