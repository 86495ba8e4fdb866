package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/internal/clock"
)

const (
	pcapSlots = 64 // frames between two pushes to the file, and frames read ahead
	pcapMTU   = 9000
	// pcapChunk is how much a busy sender's recording gathers before the file gets it.
	pcapChunk = 256 << 10
)

// OpenPCAP opens a recording as a wire: to be written, in the classic format with nanoseconds if its name ends
// in .pcap and as pcapng else, or, with o.Read, to be received from. What is written carries the clock's time.
// A receiver finds the recorded frames as fast as it takes them, each with its recorded time in terms of the clock; at the end of the
// file nothing more comes.
func OpenPCAP(path string, o PCAPOptions) (Wire, error) {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	info := Info{Name: "pcap:" + path, Kind: "pcap", MTU: pcapMTU, MaxFrame: pcapMTU + headerBytes + vlanTagBytes, MAC: [6]byte{2, 0, 0, 0, 0, 1}}
	if o.Read {
		return openPCAPReader(path, info, wallEpoch(o.Clock))
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("wire: pcap: %w", err)
	}
	w := &pcapWriter{info: info, file: f, clk: o.Clock, epoch: wallEpoch(o.Clock)}
	if strings.EqualFold(filepath.Ext(path), ".pcap") {
		classic := pcapgo.NewWriterNanos(&w.buf)
		w.out, err = classic, classic.WriteFileHeader(uint32(info.MaxFrame), layers.LinkTypeEthernet)
	} else {
		var ng *pcapgo.NgWriter
		if ng, err = newNgWriter(&w.buf, info.Name); err == nil {
			w.out, w.flush, err = ng, ng.Flush, ng.Flush()
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("wire: pcap: %s: %w", path, err)
	}
	w.mem = make([]byte, pcapSlots*info.MaxFrame)
	return w, nil
}

// newNgWriter starts a pcapng file with one interface.
func newNgWriter(w io.Writer, name string) (*pcapgo.NgWriter, error) {
	o := pcapgo.DefaultNgWriterOptions
	o.SectionInfo.Application = "bluering"
	return pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, TimestampResolution: 9}, o)
}

// wallEpoch is what turns the clock's time into the time of day. A virtual clock's time is written as it is.
func wallEpoch(c clock.Clock) int64 {
	if _, virtual := c.(*clock.Virtual); virtual {
		return 0
	}
	return time.Now().UnixNano() - c.Now()
}

// packetWriter is what both formats have.
type packetWriter interface {
	WritePacket(ci gopacket.CaptureInfo, data []byte) error
}

// pcapWriter is the sending end. Frames go through three places:
//
//	Commit ─► mem ─► Flush: formatted in buf ─► file
//
// The file gets buf when that is large, and with the next Flush that finds nothing new. Only then they are sent: a
// disk that fills up is not to count what it has not taken.
type pcapWriter struct {
	info    Info
	file    pcapFile
	buf     bytes.Buffer
	parked  []pcapParked // frames in buf, in order
	whole   int64        // bytes of the file up to the end of its last whole frame
	out     packetWriter
	flush   func() error // of out into buf; nil: it keeps nothing
	clk     clock.Clock
	epoch   int64
	mem     []byte
	lens    [pcapSlots]int
	count   int // committed, in mem
	held    int // reserved
	refused error
	err     lasting
	stats   Stats
}

// pcapFile is what a recording needs of an os.File.
type pcapFile interface {
	io.WriteCloser
	Truncate(bytes int64) error
}

// pcapParked is a frame that waits in the buffer, which has all of it up to end.
type pcapParked struct{ end, length int }

func (w *pcapWriter) Info() Info { return w.info }

func (w *pcapWriter) Reserve(lens []int32, bufs [][]byte) int {
	if w.err.get() != nil {
		return 0
	}
	w.held = 0
	for i, length := range lens {
		if w.count+i == pcapSlots {
			break
		}
		if w.refused = lengthError(w.info.Name, length, w.info.MaxFrame); w.refused != nil {
			w.stats.TxErrors++
			break
		}
		at := (w.count + i) * w.info.MaxFrame
		bufs[i] = w.mem[at : at+int(length) : at+w.info.MaxFrame]
		w.lens[w.count+i] = int(length)
		w.held++
	}
	return w.held
}

func (w *pcapWriter) Commit(n int) {
	w.count += min(n, w.held)
	w.held = 0
}

// Flush records the committed frames with the time of the flush. They are Pending until the file has them.
func (w *pcapWriter) Flush() error {
	if w.err.get() != nil {
		return w.err.get()
	}
	refused := w.refused
	w.refused = nil
	idle := w.count == 0
	if err := w.format(); err != nil {
		return w.broken(err)
	}
	if idle || w.buf.Len() >= pcapChunk {
		if err := w.write(); err != nil {
			return w.broken(err)
		}
	}
	return refused
}

// format moves the committed frames into the buffer.
func (w *pcapWriter) format() error {
	ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, w.epoch+w.clk.Now()).UTC()}
	for i := range w.count {
		at := i * w.info.MaxFrame
		ci.Length, ci.CaptureLength = w.lens[i], w.lens[i]
		err := w.out.WritePacket(ci, w.mem[at:at+w.lens[i]])
		if err == nil && w.flush != nil {
			err = w.flush()
		}
		if err != nil { // memory takes everything: only a frame that cannot be formatted comes here
			return err
		}
		w.parked = append(w.parked, pcapParked{w.buf.Len(), w.lens[i]})
	}
	w.count = 0
	return nil
}

// write gives the buffer to the file and counts the frames that are wholly there.
func (w *pcapWriter) write() error {
	took, err := w.file.Write(w.buf.Bytes())
	sent, whole := 0, 0
	for sent < len(w.parked) && w.parked[sent].end <= took {
		whole = w.parked[sent].end
		w.stats.TxFrames++
		w.stats.TxBytes += uint64(w.parked[sent].length)
		sent++
	}
	if err != nil {
		w.whole += int64(whole)
		w.parked = w.parked[sent:]
		return err
	}
	w.whole += int64(took)
	w.parked = w.parked[:0]
	w.buf.Reset()
	return nil
}

// broken makes an error stay. The frames that the file does not have are errors, and a piece of one is cut off it,
// so that the rest can be read.
func (w *pcapWriter) broken(err error) error {
	w.stats.TxErrors += uint64(w.Pending())
	w.count, w.parked = 0, nil
	w.buf.Reset()
	if w.whole > 0 {
		_ = w.file.Truncate(w.whole) // not of a device or a pipe
	}
	w.err.set(fmt.Errorf("wire: %s: %w", w.info.Name, plainPathError(err)))
	return w.err.get()
}

// plainPathError drops the path, which the wire's name has.
func plainPathError(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Pending is how many frames the file does not have yet.
func (w *pcapWriter) Pending() int     { return w.count + len(w.parked) }
func (w *pcapWriter) Next([]Frame) int { return 0 }
func (w *pcapWriter) Release(int)      {}
func (w *pcapWriter) FD() int          { return -1 }
func (w *pcapWriter) Stats(s *Stats)   { *s = w.stats }
func (w *pcapWriter) Err() error       { return w.err.get() }

// Close writes what is buffered; its error says that the file is not complete, also when Err has said so before.
func (w *pcapWriter) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.err.get()
	if err == nil {
		if werr := w.write(); werr != nil {
			err = w.broken(werr)
		}
	}
	if cerr := w.file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("wire: close %s: %w", w.info.Name, plainPathError(cerr))
	}
	w.file = nil
	w.err.set(fmt.Errorf("%w: %s", ErrClosed, w.info.Name))
	return err
}

// pcapReader is the receiving end.
type pcapReader struct {
	info  Info
	file  *os.File
	in    gopacket.PacketDataSource
	epoch int64
	ring  [pcapSlots]Frame
	head  int // of the frames not released
	count int
	end   bool
	asked bool // for room
	err   lasting
	stats Stats
}

func openPCAPReader(path string, info Info, epoch int64) (Wire, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("wire: pcap: %w", err)
	}
	r := &pcapReader{info: info, file: f, epoch: epoch}
	if err := r.start(); err != nil {
		f.Close()
		return nil, fmt.Errorf("wire: pcap: %s: %w", path, err)
	}
	return r, nil
}

// start tells the two formats apart by their first bytes.
func (r *pcapReader) start() error {
	in := bufio.NewReaderSize(r.file, 256<<10)
	magic, err := in.Peek(4)
	if err != nil {
		return fmt.Errorf("no recording: %w", err)
	}
	var link layers.LinkType
	if magic[0] == 0x0a && magic[1] == 0x0d { // a section header block, in either byte order
		ng, err := pcapgo.NewNgReader(in, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			return err
		}
		r.in, link = ng, ng.LinkType()
	} else {
		classic, err := pcapgo.NewReader(in)
		if err != nil {
			return err
		}
		r.in, link = classic, classic.LinkType()
	}
	if link != layers.LinkTypeEthernet {
		return fmt.Errorf("it has frames of %v, not of Ethernet", link)
	}
	return nil
}

func (r *pcapReader) Info() Info { return r.info }

// Reserve never has room: the next Flush says why, once.
func (r *pcapReader) Reserve(lens []int32, _ [][]byte) int {
	r.asked = r.asked || len(lens) > 0
	return 0
}

func (r *pcapReader) Commit(int) {}

func (r *pcapReader) Flush() error {
	if !r.asked {
		return nil
	}
	r.asked = false
	return fmt.Errorf("%w: %s", ErrReadOnly, r.info.Name)
}

func (r *pcapReader) Pending() int { return 0 }

// Next reads ahead by what is asked for. A file that ends in the middle of a frame is an error that stays;
// the frames before it come.
func (r *pcapReader) Next(frames []Frame) int {
	for r.count < min(len(frames), pcapSlots) && !r.end {
		data, ci, err := r.in.ReadPacketData()
		if err != nil {
			r.end = true
			if err != io.EOF {
				r.err.set(fmt.Errorf("wire: %s: after %d frames: %w", r.info.Name, r.stats.RxFrames+uint64(r.count), err))
			}
			break
		}
		f := Frame{Data: data, TimeNS: ci.Timestamp.UnixNano() - r.epoch}
		if ci.Length > ci.CaptureLength {
			f.Flags = FlagTruncated
		}
		r.ring[(r.head+r.count)%pcapSlots] = f
		r.count++
	}
	n := min(len(frames), r.count)
	for i := range frames[:n] {
		frames[i] = r.ring[(r.head+i)%pcapSlots]
	}
	return n
}

func (r *pcapReader) Release(n int) {
	for range n {
		f := &r.ring[r.head]
		r.stats.RxFrames++
		r.stats.RxBytes += uint64(len(f.Data))
		if f.Flags&FlagTruncated != 0 {
			r.stats.RxTruncated++
		}
		*f = Frame{}
		r.head = (r.head + 1) % pcapSlots
		r.count--
	}
}

func (r *pcapReader) FD() int        { return -1 }
func (r *pcapReader) Stats(s *Stats) { *s = r.stats }

// Err is nil at the end of the file: a receiver that has all frames is healthy.
func (r *pcapReader) Err() error { return r.err.get() }

func (r *pcapReader) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file, r.end, r.count = nil, true, 0
	r.err.set(fmt.Errorf("%w: %s", ErrClosed, r.info.Name))
	if err != nil {
		return fmt.Errorf("wire: close %s: %w", r.info.Name, err)
	}
	return nil
}
