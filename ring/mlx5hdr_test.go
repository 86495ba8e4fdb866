//go:build mlx5hdr

package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/ring/internal/mlx5hdr"
)

func TestOffsetsAreThoseOfTheHeader(t *testing.T) {
	ours := []int{
		OffOpmod, OffQPN, OffSig, OffFMCESE, OffImm, OffSegments,
		OffCsumFlags - 16, OffMSS - 16, OffInlineLen - 16, OffInlineHdr - 16,
		avQKey, avQPN, avRateSL, avPathML, avSport, avMAC, avTClass, avHop, avGIDFlow, avGID, len(AV{}),
		cqePath, cqeSLID, cqeFlagsQP, cqeHdrOK, cqeHdrType, cqeVLAN,
		cqeUserIdx - 1, cqeImm, cqeByteLen, cqeTime, cqeWQEOp, cqeCounter, cqeSig, cqeOpOwn,
		cqeVendor, cqeSyndrome, CQEBytes,
		srqNext, EthInline18,
	}
	theirs := mlx5hdr.Offsets()
	if len(ours) != len(theirs) {
		t.Fatalf("%d offsets, want %d", len(ours), len(theirs))
	}
	for i := range ours {
		if ours[i] != theirs[i] {
			t.Errorf("offset %d is %d, in the header %d", i, ours[i], theirs[i])
		}
	}
}

func TestConstantsAreThoseOfTheHeader(t *testing.T) {
	ours := map[string]uint32{
		"MLX5_OPCODE_NOP": uint32(OpNOP), "MLX5_OPCODE_SEND": uint32(OpSend),
		"MLX5_OPCODE_SEND_IMM": uint32(OpSendImm), "MLX5_OPCODE_TSO": uint32(OpTSO),
		"MLX5_OPCODE_RDMA_WRITE":  uint32(OpWrite),
		"MLX5_WQE_CTRL_CQ_UPDATE": FlagSignaled, "MLX5_WQE_CTRL_SOLICITED": FlagSolicited,
		"MLX5_WQE_CTRL_FENCE": FlagFence, "MLX5_ETH_WQE_L3_CSUM": CsumL3, "MLX5_ETH_WQE_L4_CSUM": CsumL4,
		"MLX5_INLINE_SEG":     inlineFlag,
		"MLX5_EXTENDED_UD_AV": avLong, "MLX5_SEND_WQE_BB": BlockBytes, "MLX5_INVALID_LKEY": TermLKey,
		"MLX5_CQE_OWNER_MASK": opOwnOwner, "MLX5_CQE_REQ": uint32(CQEReq), "MLX5_CQE_RESP_SEND": uint32(CQERecv),
		"MLX5_CQE_RESP_SEND_IMM": uint32(CQERecvImm), "MLX5_CQE_REQ_ERR": uint32(CQEReqErr),
		"MLX5_CQE_RESP_ERR": uint32(CQERecvErr), "MLX5_CQE_INVALID": uint32(CQEInvalid),
		"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR":     uint32(SynLocalLength),
		"MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR":      uint32(SynLocalQPOp),
		"MLX5_CQE_SYNDROME_LOCAL_PROT_ERR":       uint32(SynLocalProt),
		"MLX5_CQE_SYNDROME_WR_FLUSH_ERR":         uint32(SynFlushed),
		"MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR":    uint32(SynRNRRetries),
		"MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR":   uint32(SynAborted),
		"MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR": uint32(SynRemoteInval),
		"MLX5_RCV_DBR":                           0, "MLX5_SND_DBR": 1, // words of a Record
	}
	theirs := mlx5hdr.Constants()
	for name, v := range theirs {
		if o, ok := ours[name]; !ok || o != v {
			t.Errorf("%s is %#x, in the header %#x", name, o, v)
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("%d constants, in the header %d", len(ours), len(theirs))
	}
}

func TestEncodersWriteWhatTheHeadersSettersWrite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		pi, qpn, imm := uint16(r.Uint32()), r.Uint32()&0xffffff, r.Uint32()
		op, ds, f := uint8(r.Uint32()), uint8(r.IntN(64)), uint8(r.Uint32())
		var w [1]Block
		fillA5(Flatten(w[:]))
		PutCtrl(&w[0], pi, Opcode(op), qpn, int(ds), f, imm)
		var be [4]byte
		binary.BigEndian.PutUint32(be[:], imm)
		want := mlx5hdr.Ctrl(pi, op, qpn, f, ds, binary.NativeEndian.Uint32(be[:]))
		if got := [16]byte(w[0][:16]); got != want {
			t.Fatalf("control segment %x, want %x", got, want)
		}
		s := Seg{r.Uint64(), r.Uint32(), r.Uint32()}
		PutData(w[:], 2, s)
		if got, want := [16]byte(w[0][32:48]), mlx5hdr.Data(s.Len, s.LKey, s.Addr); got != want {
			t.Fatalf("pointer %x, want %x", got, want)
		}
		var c CQE
		c[cqeOpOwn] = uint8(r.Uint32())
		cop, owner, se, format := mlx5hdr.OpOwn(c)
		if uint8(c.Op()) != cop || c.OpOwn()&1 != owner || c.Format() != format || c.Solicited() != (se != 0) {
			t.Fatalf("last byte %#x read as %d %d %d %d", c.OpOwn(), cop, owner, se, format)
		}
	}
}
