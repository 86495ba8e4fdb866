package softnic

import (
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// Caps tells what the NIC can do.
func (n *NIC) Caps() engine.Caps {
	i := &n.info
	features := engine.FeatureRSS | engine.FeatureSRQ | engine.FeatureEvents
	if n.maxDatagram > 0 {
		features |= engine.FeatureUD
	}
	return engine.Caps{
		Name: i.Name, Kind: i.Kind, Profile: n.cfg.Profile, IsWire: !i.Loop, Loop: i.Loop,
		MAC: i.MAC, Addr4: i.Addr4, Addr6: i.Addr6, MTU: i.MTU, MinFrame: max(i.MinFrame, ethernetHeader), MaxFrame: i.MaxFrame,
		SpeedBPS: i.SpeedBPS, IfIndex: i.IfIndex, NetNS: i.NetNS, MinInline: n.cfg.MinInline,
		MaxRSSTable: maxRSSTable, RSSFields: rssFields,
		MaxQP: maxQP, MaxCQ: maxCQ, MaxMR: maxMR - firstMR, MaxCQE: maxCQEntries - 1,
		Offloads:    engine.OffloadRawCsum | engine.OffloadRawTSO | engine.OffloadRxCsum,
		MinRateKbps: minRateKbps, MaxRateKbps: maxRateKbps, RateBurst: true,
		MaxTSO: maxTSO, MaxTSOHeader: maxTSOHeader,
		MaxSendWR: ring.MaxSlots, MaxRecvWR: ring.MaxSlots, MaxSendSGE: maxSGE, MaxRecvSGE: maxSGE,
		MaxSRQ: maxSRQ, MaxSRQWR: ring.MaxSRQEntries - 1, MaxSRQSGE: maxSGE, Autonomous: n.g != nil,
		Features: features, MaxDatagram: n.maxDatagram, MaxGroups: maxGroups, MaxGroupQPs: maxGroupQPs,
	}
}

// Counters adds what the NIC and its wire have counted. Any goroutine may ask.
//
// DropWire is what came off second best between two NICs: frames beyond the receive ring or the queue of the
// wire, frames an impaired wire lost. DropNoPeer counts at the sender.
func (n *NIC) Counters(c *engine.Counters) {
	n.control(func() error {
		o := &n.counters
		c.TxFrames += o.TxFrames
		c.TxBytes += o.TxBytes
		c.RxFrames += o.RxFrames
		c.RxBytes += o.RxBytes
		c.RxCopies += o.RxCopies
		c.TxErrors += o.TxErrors
		c.TxFlushed += o.TxFlushed
		c.RxFlushed += o.RxFlushed
		c.TxPassed += o.TxPassed
		c.TxWireFull += o.TxWireFull
		c.TxWireErrors += o.TxWireErrors
		c.TxNotBuilt += o.TxNotBuilt
		c.TxLooped += o.TxLooped
		c.TxTooLong += o.TxTooLong
		c.RxCNPs += o.RxCNPs
		c.WeakICRCs += o.WeakICRCs
		c.CQOverruns += o.CQOverruns
		c.LostCQEs += o.LostCQEs
		c.DroppedBytes += o.DroppedBytes
		for i := range o.Drops {
			c.Drops[i] += o.Drops[i]
		}
		n.flushWire() // so that the counts are of what the medium has taken or refused
		var s wire.Stats
		n.wire.Stats(&s)
		c.TxLost += o.TxFrames - min(o.TxFrames, s.TxFrames)
		c.TxLostBytes += o.TxBytes - min(o.TxBytes, s.TxBytes)
		c.RxInFlight += s.RxInFlight
		c.Drops[engine.DropWire] += s.RxRingDrops + s.TxQueueDrops + s.ImpairLost
		c.Drops[engine.DropNoPeer] += s.NoPeer
		return nil
	})
}
