package ring

import (
	"encoding/binary"
	"testing"
)

// goodRaw is a raw packet with an 18-byte header and one pointer, goodTSO a
// TSO WQE, goodUD a datagram with one pointer; each of two published blocks.
func goodRaw() []Block {
	w := make([]Block, 2)
	PutCtrl(&w[0], 7, OpSend, 0x100, 4, FlagSignaled, 0)
	PutEth18(&w[0], CsumL3, new([18]byte))
	PutData(w, 3, Seg{0x1000, 42, 0x1100})
	return w
}

func goodTSO() []Block {
	w := make([]Block, 2)
	PutCtrl(&w[0], 7, OpTSO, 0x100, 7, FlagSignaled, 0)
	PutData(w, PutEth(w, CsumL3|CsumL4, 1448, make([]byte, 54)), Seg{0x1000, 4000, 0x1100})
	return w
}

func goodUD() []Block {
	w := make([]Block, 2)
	PutCtrl(&w[0], 7, OpSend, 0x100, 5, FlagSignaled, 0)
	av := MakeAV(&AVFields{HopLimit: 64})
	PutDatagram(&w[0], &av, 1, 2)
	PutData(w, 4, Seg{0x1000, 42, 0x1100})
	return w
}

func TestEachRuleIsBrokenByItsOwnWQE(t *testing.T) {
	raw18 := SendLimits{MinInline: 18}
	ud := SendLimits{Kind: UD}
	set := func(off int, v byte) func([]Block) []Block {
		return func(w []Block) []Block { w[off/64][off%64] = v; return w }
	}
	cases := []struct {
		rule Rule
		wqe  func() []Block
		lim  SendLimits
		harm func([]Block) []Block
	}{
		{RuleNone, goodRaw, raw18, nil},
		{RuleNone, goodTSO, raw18, nil},
		{RuleNone, goodUD, ud, nil},
		{RuleSize, goodRaw, raw18, set(OffDS, 0)},
		{RuleSize, goodRaw, raw18, set(OffDS, 1)},
		{RulePublished, goodRaw, raw18, set(OffDS, 9)},
		{RuleIndex, goodRaw, raw18, set(OffIndex+1, 8)},
		{RuleQPN, goodRaw, raw18, set(OffQPN, 1)},
		{RuleOpmod, goodRaw, raw18, set(OffOpmod, 1)},
		{RuleNoSignature, goodRaw, raw18, set(OffSig, 1)},
		{RuleCtrlReserved, goodRaw, raw18, set(9, 1)},
		{RuleCtrlReserved, goodRaw, raw18, set(OffDS, 0x44)},
		{RuleFence, goodRaw, raw18, set(OffFMCESE, 0x20)},
		{RuleCompletion, goodRaw, raw18, set(OffFMCESE, 0x0c)},
		{RuleOpcode, goodRaw, raw18, set(OffOpcode, byte(OpWrite))},
		{RuleOpcode, goodRaw, raw18, set(OffOpcode, byte(OpSendImm))},
		{RuleOpcode, goodUD, ud, set(OffOpcode, byte(OpTSO))},
		{RuleEthReserved, goodRaw, raw18, set(OffSWP, 1)},
		{RuleEthReserved, goodRaw, raw18, set(OffSWPFlags, 1)},
		{RuleEthReserved, goodRaw, raw18, set(OffMetadata, 1)},
		{RuleCsumFlags, goodRaw, raw18, set(OffCsumFlags, 0x08)},
		{RuleNone, goodRaw, raw18, set(OffCsumFlags, 0xf0)},
		{RuleInlineHdrRoom, goodRaw, raw18, set(OffInlineLen+1, 60)},
		{RuleMinInline, goodRaw, raw18, set(OffInlineLen+1, 17)},
		{RuleMSS, goodRaw, raw18, set(OffMSS, 1)},
		{RuleMSS, goodTSO, raw18, func(w []Block) []Block { w[0][OffMSS], w[0][OffMSS+1] = 0, 0; return w }},
		{RuleTSOHeader, goodTSO, raw18, set(OffInlineLen+1, 13)},
		{RuleNone, goodTSO, raw18, set(OffDS, 6)}, // no payload: one frame of the header
		{RuleTSOPayload, goodTSO, raw18, func(w []Block) []Block { PutInline(w, 6, []byte{1}); return w }},
		{RuleAVRoom, goodUD, ud, set(OffDS, 3)},
		{RuleAVLong, goodUD, ud, set(16+avQPN, 0)},
		{RuleAVReserved, goodUD, ud, set(16+4, 1)},
		{RuleAVReserved, goodUD, ud, set(16+16, 1)},
		{RuleAVReserved, goodUD, ud, set(16+avGIDFlow, 0x40)},
		{RulePointerLen, goodRaw, raw18, func(w []Block) []Block { PutData(w, 3, Seg{}); return w }},
		{RuleInlineLen, goodRaw, raw18, set(48, 0x80)},
		{RuleInlineLen, goodRaw, raw18, func(w []Block) []Block {
			binary.BigEndian.PutUint32(w[0][48:], inlineFlag)
			return w
		}},
		{RuleInlineLast, goodRaw, raw18, func(w []Block) []Block {
			w[0][OffDS] = 5
			PutInline(w, 4, []byte{1})
			return w
		}},
		{RuleTotalLen, goodRaw, raw18, func(w []Block) []Block {
			w[0][OffDS] = 5
			PutData(w, 3, Seg{0, 1<<31 - 1, 1})
			PutData(w, 4, Seg{0, 1<<31 - 1, 1})
			return w
		}},
		{RuleEmptyFrame, goodRaw, SendLimits{}, func(w []Block) []Block {
			w[0][OffDS] = 2
			PutEth0(&w[0], 0)
			return w
		}},
	}
	seen := map[Rule]bool{RuleNoWrap: true} // in TestWrappingWQEIsRefused
	for i, c := range cases {
		w := c.wqe()
		if c.harm != nil {
			w = c.harm(w)
		}
		v := SendWQE{Index: 7}
		if got := DecodeSend(w, &v, 0x100, &c.lim); got != c.rule {
			t.Errorf("case %d: %v, want %v", i, got, c.rule)
		}
		seen[c.rule] = true
	}
	for r := RuleNone; r < ruleCount; r++ {
		if !seen[r] {
			t.Errorf("rule %v is broken by no test", r)
		}
		if r != RuleNone && (r.Source() == "" || r.Syndrome() == SynNone) {
			t.Errorf("rule %v has no source or no syndrome", r)
		}
	}
}

func TestWrappingWQEIsRefused(t *testing.T) {
	s, d := newTestSQ(t, 4, SQConfig{QPN: 0x100, MaxBB: 2})
	for i := range 3 {
		w := s.Blocks()[i : i+1]
		PutCtrl(&w[0], uint16(i), OpSend, 0x100, 3, 0, 0)
		PutEth0(&w[0], 0)
		PutData(w, 2, Seg{1, 60, 1})
	}
	PutCtrl(&s.Blocks()[3], 3, OpSend, 0x100, 8, 0, 0)
	d.rec.StoreSend(3)
	var v SendWQE
	for range 3 {
		if d.Fetch(&v) != FetchOK {
			t.Fatal(v.Rule)
		}
		d.Advance()
	}
	d.rec.StoreSend(5)
	if d.Fetch(&v) != FetchBad || v.Rule != RuleNoWrap || v.Index != 3 || v.Syndrome != SynLocalQPOp {
		t.Fatalf("%v at %d", v.Rule, v.Index)
	}
	d.Advance()
	if d.Fetch(&v) != FetchEmpty || d.CI() != 5 {
		t.Fatalf("counter %d after a refused WQE of two blocks, want 5", d.CI())
	}
}
