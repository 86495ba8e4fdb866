package bench

import (
	"context"
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// null is a device that executes nothing, so that the host's half of the work can be timed alone. Its doorbell only
// remembers the last WQE; complete, which the benchmark calls outside the timed part, says that all up to it are done.
// It has one queue pair.
type null struct {
	tb      testing.TB
	regions []*ring.Region
	keys    uint32
	cqs     map[uint32]*ring.DevCQ
	spec    engine.QPSpec
	qpn     uint32
	last    uint16 // index of the last WQE rung for
}

func openNull(tb testing.TB) (*engine.Device, *null) {
	tb.Helper()
	n := &null{tb: tb, cqs: map[uint32]*ring.DevCQ{}}
	d, err := engine.NewDevice(n)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d, n
}

func (n *null) region(bytes int) []byte {
	r, err := ring.NewRegion(bytes, ring.RegionOptions{})
	if err != nil {
		n.tb.Fatal(err)
	}
	n.regions = append(n.regions, r)
	return r.Bytes()
}

func (n *null) record() ring.Record {
	r, err := ring.NewRecord(n.region(8)[:8])
	if err != nil {
		n.tb.Fatal(err)
	}
	return r
}

// complete writes the one CQE that retires every WQE rung for so far.
func (n *null) complete() {
	cq := n.cqs[n.spec.SendCQN]
	cq.Free() // reads the consumer's record, as a device must before it fills entries
	e, ok := cq.Next()
	if !ok {
		n.tb.Fatal("the completion queue is full")
	}
	e.PutReq(n.spec.UserIndex, n.qpn, ring.OpSend, n.last, 0)
	cq.Seal(uint8(ring.CQEReq) << 4)
	cq.Publish()
}

func (n *null) Caps() engine.Caps {
	return engine.Caps{Name: "null:", Kind: "null", MaxFrame: 9014}
}

func (n *null) AllocMemory(bytes int) (*ring.Region, error) {
	return ring.NewRegion(bytes, ring.RegionOptions{})
}

func (n *null) Register(uint32, []byte, engine.Access) (lkey uint32, addr uint64, err error) {
	n.keys++
	return n.keys << 8, uint64(n.keys) << 32, nil
}

func (n *null) NewCQ(entries int) (engine.CQMem, error) {
	m := engine.CQMem{CQN: uint32(len(n.cqs) + 1), CQEs: ring.CQEs(n.region(entries * 64))[:entries], Rec: n.record()}
	var err error
	n.cqs[m.CQN], err = ring.NewDevCQ(m.CQEs, m.Rec, m.CQN)
	return m, err
}

func (n *null) NewQP(s engine.QPSpec) (engine.QPMem, error) {
	n.spec, n.qpn = s, 0x123
	return engine.QPMem{
		QPN:   n.qpn,
		SQ:    ring.BlocksOf(n.region(s.SQSlots * ring.BlockBytes))[:s.SQSlots],
		SQRec: n.record(),
		RQ:    n.region(max(s.RQEntries*s.RQStride, 64)),
		RQRec: n.record(),
	}, nil
}

// Ring takes the WQE index out of the doorbell's bytes: opcode, index and opmod are the first big-endian word.
func (n *null) Ring(_ uint32, dbWord uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], dbWord)
	n.last = uint16(binary.BigEndian.Uint32(b[:]) >> 8)
}

func (n *null) Close() error {
	for _, r := range n.regions {
		if err := r.Close(); err != nil {
			return err
		}
	}
	n.regions = nil
	return nil
}

func (n *null) Deregister(uint32) error                              { return nil }
func (n *null) DestroyCQ(uint32) error                               { return nil }
func (n *null) DestroyQP(uint32) error                               { return nil }
func (n *null) NewSRQ(engine.SRQSpec) (m engine.SRQMem, err error)   { return m, syscall.EOPNOTSUPP }
func (n *null) DestroySRQ(uint32) error                              { return syscall.EINVAL }
func (n *null) LimitSRQ(uint32, int) error                           { return syscall.EINVAL }
func (n *null) Notify(func(engine.DeviceEvent))                      {}
func (n *null) ArmCQ(uint32, uint64)                                 {}
func (n *null) Wake()                                                {}
func (n *null) WaitFD() (int, bool, int64)                           { return -1, false, -1 }
func (n *null) SetState(uint32, engine.QPState, engine.QPAttr) error { return nil }
func (n *null) Attach(uint32, engine.FlowRule) (uint64, error)       { return 1, nil }
func (n *null) Detach(uint64) error                                  { return nil }
func (n *null) GIDs() []engine.GIDEntry                              { return nil }
func (n *null) AttachMulticast(uint32, engine.GID) error             { return nil }
func (n *null) DetachMulticast(uint32, engine.GID) error             { return nil }
func (n *null) Resolve(context.Context, engine.Dest) (engine.AHAttr, error) {
	return engine.AHAttr{}, nil
}
func (n *null) Progress(int) int          { return 0 }
func (n *null) Wait(int64) error          { return nil }
func (n *null) Counters(*engine.Counters) {}
func (n *null) Err() error                { return nil }
