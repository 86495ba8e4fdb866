package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/clock"
)

// Numbers of Profiles.
const (
	strict = iota
	rxe
	mlx5
)

// trial is the judging of one item in one profile.
type trial struct {
	*testing.T
	profile int
	inline  int    // bytes that the device wants in the WQE
	params  string // more of the device string
	clock   *clock.Virtual
	points  map[int]bool // where the profile was seen to settle a point otherwise
	ends    []*end
}

// end is one end of a wire.
type end struct {
	x    *trial
	dev  *engine.Device
	pd   *engine.PD
	cq   *engine.CQ
	pool *engine.Pool
	qp   *engine.QP
}

// choose gives what the profile wants at a point, and notes the point when that is not what strict wants.
func choose[T comparable](x *trial, point int, inStrict, inRXE, inMLX5 T) T {
	v := [3]T{inStrict, inRXE, inMLX5}[x.profile]
	if v != inStrict {
		x.points[point] = true
	}
	return v
}

func (x *trial) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// want judges an error, and the errno in it.
func (x *trial) want(what string, err, want error) {
	x.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		x.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func (x *trial) check(ok bool, format string, args ...any) {
	x.Helper()
	if !ok {
		x.Fatalf(format, args...)
	}
}

var loops atomic.Uint64

// uris gives the strings of two ends that see each other and nobody else.
func (x *trial) uris() (a, b string) {
	q := fmt.Sprintf("profile=%v&inline=%d", Profiles[x.profile], x.inline)
	if x.params != "" {
		q += "&" + x.params
	}
	with := func(uri string) string {
		if strings.Contains(uri, "?") {
			return uri + "&" + q
		}
		return uri + "?" + q
	}
	scheme, rest, _ := strings.Cut(*flagDevice, ":")
	if scheme != "loop" {
		return with(*flagDevice), with(*flagPeer)
	}
	name, query, _ := strings.Cut(rest, "?")
	uri := fmt.Sprintf("loop:%sconformance%d", name, loops.Add(1))
	if query != "" {
		uri += "?" + query
	}
	return with(uri), with(uri)
}

// open makes an end with a CQ, a pool and a raw queue pair as ordered, in RESET.
func (x *trial) open(uri string, c engine.QPConfig) *end {
	x.Helper()
	o := device.Options{}
	if x.clock != nil {
		o.Clock = x.clock
	}
	d, err := device.Open(uri, o)
	x.ok(err)
	e := &end{x: x, dev: d, pd: d.NewPD()}
	x.ends = append(x.ends, e)
	x.Cleanup(func() { d.Close() })
	e.cq, err = d.NewCQ(1000)
	x.ok(err)
	e.pool, err = e.pd.AllocPool(200, 2048)
	x.ok(err)
	e.qp = e.raw(c)
	return e
}

// raw makes one more raw queue pair in RESET.
func (e *end) raw(c engine.QPConfig) *engine.QP {
	e.x.Helper()
	c.Type, c.SendCQ, c.RecvCQ = engine.RawPacket, e.cq, e.cq
	q, err := e.pd.NewQP(c)
	e.x.ok(err)
	return q
}

// ud makes a UD queue pair in RESET.
func (e *end) ud() *engine.QP {
	e.x.Helper()
	q, err := e.pd.NewQP(engine.QPConfig{Type: engine.UD, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 8, MaxRecvWR: 8})
	e.x.ok(err)
	return q
}

func (e *end) ah() *engine.AH {
	e.x.Helper()
	a, err := e.pd.NewAH(engine.AHAttr{GID: [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: 2}})
	e.x.ok(err)
	return a
}

// lone opens one end, in RTS.
func (x *trial) lone(c engine.QPConfig) *end {
	x.Helper()
	uri, _ := x.uris()
	a := x.open(uri, c)
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	return a
}

// pair opens two ends, both in RTS; b takes all frames.
func (x *trial) pair(c engine.QPConfig) (a, b *end) {
	x.Helper()
	one, other := x.uris()
	if c.MaxSendWR == 0 {
		c.MaxSendWR = 16
	}
	if c.MaxRecvWR == 0 {
		c.MaxRecvWR = 16
	}
	a, b = x.open(one, c), x.open(other, engine.QPConfig{MaxSendWR: 16, MaxRecvWR: 64, MaxRecvSGE: 4})
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	x.ok(b.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err := b.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
	x.ok(err)
	return a, b
}

// close ends all devices of the trial, so that it can go on with others.
func (x *trial) close() {
	x.Helper()
	for _, e := range x.ends {
		x.ok(e.dev.Close())
	}
	x.ends = nil
}

// eachInline runs f for devices of both inline minima.
func (x *trial) eachInline(f func()) {
	for _, x.inline = range []int{0, 18} {
		f()
		x.close()
	}
}

// frame gives n bytes from the sender's to the receiver's MAC that tell their number.
func (e *end) frame(n int, number byte) []byte {
	b := make([]byte, max(n, 14))
	for i := range b {
		b[i] = byte(i) ^ number
	}
	mac := e.dev.Caps().MAC
	copy(b, []byte{2, 0, 0, 0, 0, 0x77})
	copy(b[6:], mac[:])
	binary.BigEndian.PutUint16(b[12:], 0x88b5) // for experiments (IEEE 802)
	return b[:n]
}

// piece puts bytes into a frame of the pool and names them.
func (e *end) piece(data []byte) engine.SGE {
	e.x.Helper()
	f, ok := e.pool.Get()
	e.x.check(ok, "the pool is empty")
	copy(e.pool.Bytes(f), data)
	return e.pool.SGE(f, len(data))
}

// send makes a signaled request.
func (e *end) send(id uint64, data []byte) engine.SendWR {
	e.x.Helper()
	return engine.SendWR{ID: id, Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{e.piece(data)}}
}

// sends makes n signaled requests of 60 bytes, with IDs from 0 on.
func (e *end) sends(n int) []engine.SendWR {
	e.x.Helper()
	wrs := make([]engine.SendWR, n)
	for i := range wrs {
		wrs[i] = e.send(uint64(i), e.frame(60, byte(i)))
	}
	return wrs
}

func (e *end) post(wrs ...engine.SendWR) {
	e.x.Helper()
	n, err := e.qp.Post(wrs)
	e.x.ok(err)
	e.x.check(n == len(wrs), "posted %d of %d", n, len(wrs))
}

// refused judges a post whose request bad is to be refused.
func (e *end) refused(what string, wrs []engine.SendWR, bad int, errno syscall.Errno) {
	e.x.Helper()
	n, err := e.qp.Post(wrs)
	e.x.want(what, err, errno)
	var p *engine.PostError
	e.x.check(errors.As(err, &p) && p.Index == bad && n == bad, "%s: posted %d, error %+v, want %d", what, n, err, bad)
}

// receives posts n receives of 2048 bytes; the ID is the frame.
func (e *end) receives(q *engine.QP, n int) {
	e.x.Helper()
	for range n {
		f, ok := e.pool.Get()
		e.x.check(ok, "the pool is empty")
		e.x.ok(q.PostRecv1(uint64(f), e.pool.SGE(f, 2048)))
	}
}

// take polls n completions; it fails when they do not come.
func (e *end) take(n int) []engine.Completion {
	e.x.Helper()
	wc := make([]engine.Completion, n)
	got := 0
	for round := 0; got < n && round < 2000; round++ {
		k, err := e.cq.Poll(wc[got:])
		e.x.ok(err)
		got += k
		if k == 0 && !e.x.work() && round > 10 {
			e.x.ok(e.dev.Wait(1e6))
		}
	}
	e.x.check(got == n, "%d completions came, want %d: %+v", got, n, wc[:got])
	return wc
}

// one polls one completion and judges it.
func (e *end) one(id uint64, s engine.Status) engine.Completion {
	e.x.Helper()
	c := e.take(1)[0]
	e.x.check(c.WRID == id && c.Status == s, "got %+v, want request %d with %v", c, id, s)
	return c
}

// quiet fails when a completion comes.
func (e *end) quiet() {
	e.x.Helper()
	wc := make([]engine.Completion, 4)
	for round := 0; round < 4; round++ {
		n, err := e.cq.Poll(wc)
		e.x.ok(err)
		e.x.check(n == 0, "nothing was to complete, got %+v", wc[:n])
		if !e.x.work() && !deterministic() {
			e.x.ok(e.dev.Wait(5e6))
		}
	}
}

// deterministic reports whether the devices work only when they are told to, so that what has not come after that
// does not come.
func deterministic() bool {
	return strings.HasPrefix(*flagDevice, "loop:") && !strings.Contains(*flagDevice, "mode=goroutine")
}

// settles waits for a condition that other goroutines may bring about.
func (e *end) settles(f func() bool) bool {
	for range 1000 {
		if f() {
			return true
		}
		if !e.x.work() {
			e.x.ok(e.dev.Wait(1e6))
		}
	}
	return f()
}

// work lets all devices run.
func (x *trial) work() (did bool) {
	for _, e := range x.ends {
		did = e.dev.Progress(64) > 0 || did
	}
	return did
}

// arrives polls receives and compares them with the frames.
func (e *end) arrives(frames ...[]byte) {
	e.x.Helper()
	for i, c := range e.take(len(frames)) {
		got, want := e.pool.Bytes(uint32(c.WRID))[:c.ByteLen], e.padded(frames[i])
		e.x.check(c.Status == engine.StatusSuccess && c.Recv && bytes.Equal(got, want),
			"frame %d: %+v\n got %x\nwant %x", i, c, got, want)
	}
}

// padded is a frame as the wire brings it: short ones get zeros.
func (e *end) padded(frame []byte) []byte {
	return append(frame[:len(frame):len(frame)], make([]byte, max(0, e.dev.Caps().MinFrame-len(frame)))...)
}

// again brings the queue pair back to RTS after an error.
func (e *end) again() {
	e.x.Helper()
	e.x.ok(e.qp.Modify(engine.StateReset, engine.QPAttr{}, 0))
	e.x.ok(e.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
}

// hold makes the queue pair queue its sends; release lets them go.
func (e *end) hold() {
	e.x.Helper()
	e.x.ok(e.qp.Modify(engine.StateSQD, engine.QPAttr{}, 0))
}

func (e *end) release() {
	e.x.Helper()
	e.x.ok(e.qp.Modify(engine.StateRTS, engine.QPAttr{}, 0))
	e.x.work()
}

// sent waits until the device has sent n frames and written their completions.
func (e *end) sent(n uint64) {
	e.x.Helper()
	e.x.check(e.settles(func() bool { return e.counters().TxFrames == n }), "%d frames sent, want %d", e.counters().TxFrames, n)
}

func (e *end) counters() engine.Counters {
	e.x.work()
	return e.dev.Counters()
}
