package traffic

// stallNS is the gap between two rounds of a loop from which it counts as a
// stall: something else had the processor.
const stallNS = 50_000

// stallLedger notes the gaps of a loop that should have none.
type stallLedger struct {
	last    int64
	count   uint64
	longest int64
}

// tick notes a round at time now.
func (s *stallLedger) tick(now int64) {
	if gap := now - s.last; s.last != 0 && gap > stallNS {
		s.count++
		s.longest = max(s.longest, gap)
	}
	s.last = now
}

// rest forgets the last round: the loop is about to sleep of its own will.
func (s *stallLedger) rest() { s.last = 0 }

// sender drives a pacer until it is done, told to stop, or fails. One goroutine
// owns it; it is told the time like the pacer.
type sender struct {
	pacer  *pacer
	port   outPort
	stalls stallLedger
	ended  bool
	cut    bool // told to stop before it was done
	err    error

	failed, failedBytes uint64 // of the frames the pacer has sent, known at the end
}

// outPort is what a sender needs of a port beside its queues.
type outPort interface {
	Queues() []txQueue
	SentBytes() uint64 // with FCS, of all queues
	// Failed is what of the frames counted as sent has not left, and their bytes. It is asked at the end.
	Failed() (frames, bytes uint64)
	Hello(kind uint32, total uint64) error
	Pending() int // frames the device still has; drives it on the way
	Err() error
}

// step sends what is due. ended is true from then on when nothing is left.
func (s *sender) step(now int64, stop bool) int {
	if s.ended {
		return 0
	}
	s.stalls.tick(now)
	if done := s.pacer.done(now); done || stop {
		s.ended, s.cut = true, !done
		return 0
	}
	n, err := s.pacer.round(now)
	if perr := s.port.Err(); perr != nil {
		err = perr // it says why, where a completion only says that
	}
	if err != nil {
		s.err, s.ended = err, true
	}
	return n
}
