package echo

import (
	"encoding/binary"

	"github.com/bluering/bluering/ud"
)

// markBytes begin a datagram that has room for them: the run's nonce, and the
// datagram's number. Shorter ones have the number's low 32 bits as immediate
// data, which a server sends back, too.
const markBytes = 16

// put sends datagram seq. The bytes behind the mark are what they last were.
func (x *client) put(peer ud.Peer, seq uint64) error {
	if x.c.Size >= markBytes {
		b, err := x.ep.Reserve(peer, x.c.Size)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(b, x.nonce)
		binary.BigEndian.PutUint64(b[8:], seq)
		return nil
	}
	o := ud.SendOptions{}
	if !x.c.foreign() {
		o = ud.SendOptions{Imm: uint32(seq), HasImm: true}
	}
	_, err := x.ep.ReserveWith(peer, x.c.Size, o)
	return err
}

// seqOf tells which datagram a message answers, next being the number after the
// newest sent; false: none of this run. A peer that is not ours answers the
// newest.
func (x *client) seqOf(m *ud.Msg, next uint64) (seq uint64, ok bool) {
	switch {
	case m.SrcQPN != x.s.Theirs.QPN:
		return 0, false
	case x.c.foreign():
		return next - 1, true
	case len(m.Data) != x.c.Size:
		return 0, false
	case x.c.Size >= markBytes:
		seq = binary.BigEndian.Uint64(m.Data[8:])
		return seq, binary.BigEndian.Uint64(m.Data) == x.nonce && seq < next
	case !m.HasImm:
		return 0, false
	}
	seq = next - 1 - uint64(uint32(next-1)-m.Imm) // the newest with these low bits
	return seq, seq < next
}
