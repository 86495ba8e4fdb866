package softnic

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
)

// Steering decides which queue pairs get a received frame.
//
//	match rules      by priority, lower numbers first; the first rule that matches wins, and every other QP
//	                 that holds the very same match at the same priority gets a copy too (J-12)
//	multicast rules  multicast and broadcast frames that no match rule took (J-15); one copy for each QP
//	all rules        what is still left (J-14); one copy for each QP
//
// A QP without a rule receives nothing (J-01). Rules of equal priority that overlap without being the same
// are tried in the order they were attached, so that a run repeats.
type steering struct {
	rules     []rule
	multicast []rule
	all       []rule
	hashed    bool   // some rule is a receive hash's
	parse     bool   // some match rule looks behind the MAC addresses
	only      *qp    // the one QP with an all rule when there is no other rule: no look at the frame
	nextID    uint64 // of the next rule; 0 is never used
	headers   proto.Headers
	parsed    bool                // headers are those of the frame being steered
	hashes    [maxTargets]rssHash // of the frame being steered, for each target; none where hashed is false
}

type rule struct {
	id       uint64
	q        *qp
	priority int
	match    matcher
}

// maxTargets bounds the copies of one frame.
const maxTargets = 64

// targets fills out with the QPs that get the frame and returns how many they are.
func (s *steering) targets(frame []byte, out *[maxTargets]*qp) int {
	count := s.steer(frame, out)
	if s.hashed {
		count = s.spread(frame, out[:count])
	}
	return count
}

// steer fills out with the QPs that get the frame, each once, and returns how many they are. A receive hash stands for itself.
func (s *steering) steer(frame []byte, out *[maxTargets]*qp) int {
	if s.parse {
		s.parsed = proto.Parse(frame, &s.headers)
	}
	for i := range s.rules {
		if s.rules[i].match.matches(frame, s) {
			return s.collect(i, out)
		}
	}
	if frame[0]&1 != 0 && len(s.multicast) > 0 {
		return collectAll(s.multicast, out)
	}
	return collectAll(s.all, out)
}

// collect takes rule i and those that hold the same match at the same priority, which stand behind it.
func (s *steering) collect(i int, out *[maxTargets]*qp) int {
	count := 0
	first := &s.rules[i]
	for k := i; k < len(s.rules) && s.rules[k].priority == first.priority; k++ {
		if s.rules[k].match == first.match {
			out[count] = s.rules[k].q
			count++
		}
	}
	return count
}

func collectAll(rules []rule, out *[maxTargets]*qp) int {
	for i := range rules {
		out[i] = rules[i].q
	}
	return len(rules)
}

// list gives the list a new rule belongs to.
func (s *steering) list(k engine.FlowKind) *[]rule {
	switch k {
	case engine.FlowAll:
		return &s.all
	case engine.FlowMulticast:
		return &s.multicast
	}
	return &s.rules
}

func (s *steering) attach(q *qp, list *[]rule, r rule) (uint64, error) {
	same := 0
	for i := range *list {
		if o := &(*list)[i]; o.priority == r.priority && o.match == r.match {
			if o.q == q {
				return 0, fmt.Errorf("softnic: QP 0x%x has this flow rule already: %w", q.qpn, syscall.EEXIST)
			}
			same++
		}
	}
	if same >= maxTargets {
		return 0, fmt.Errorf("softnic: %d queue pairs share this flow rule already: %w", same, syscall.ENOMEM)
	}
	r.id, r.q = s.nextID, q
	s.nextID++
	at := len(*list)
	for at > 0 && (*list)[at-1].priority > r.priority {
		at--
	}
	*list = slices.Insert(*list, at, r)
	s.settle()
	return r.id, nil
}

// remove drops the rules that which names and returns how many there were.
func (s *steering) remove(which func(*rule) bool) int {
	before := len(s.rules) + len(s.multicast) + len(s.all)
	gone := func(r rule) bool { return which(&r) }
	s.rules = slices.DeleteFunc(s.rules, gone)
	s.multicast = slices.DeleteFunc(s.multicast, gone)
	s.all = slices.DeleteFunc(s.all, gone)
	s.settle()
	return before - len(s.rules) - len(s.multicast) - len(s.all)
}

// settle derives what the receive path reads from the lists.
func (s *steering) settle() {
	s.only, s.parse, s.hashed = nil, false, false
	for _, list := range [][]rule{s.rules, s.multicast, s.all} {
		for i := range list {
			s.hashed = s.hashed || list[i].q.rss != nil
		}
	}
	if len(s.rules) == 0 && len(s.multicast) == 0 && len(s.all) == 1 && !s.hashed {
		s.only = s.all[0].q
	}
	if !s.hashed {
		clear(s.hashes[:])
	}
	for i := range s.rules {
		s.parse = s.parse || s.rules[i].match.needParsed
	}
}
