package engine_test

import (
	"fmt"
	"log"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
)

// Two ends of an in-process wire: one posts a frame, the other has posted
// memory for it.
func Example() {
	var qps [2]*engine.QP
	var cqs [2]*engine.CQ
	var pools [2]*engine.Pool
	for i := range qps {
		dev, err := device.Open("loop:example", device.Options{})
		check(err)
		defer dev.Close()
		cqs[i], err = dev.NewCQ(64)
		check(err)
		pd := dev.DefaultPD()
		pools[i], err = pd.AllocPool(16, 2048)
		check(err)
		qps[i], err = pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cqs[i], RecvCQ: cqs[i], MaxSendWR: 16, MaxRecvWR: 16})
		check(err)
		check(qps[i].MoveTo(engine.StateRTS, engine.QPAttr{}))
	}
	_, err := qps[1].Attach(engine.FlowRule{Kind: engine.FlowAll})
	check(err)

	into, _ := pools[1].Get()
	check(qps[1].PostRecv1(uint64(into), pools[1].SGE(into, 2048)))

	out, _ := pools[0].Get()
	n := copy(pools[0].Bytes(out)[14:], "a frame's payload, with fourteen bytes of Ethernet header before it")
	wr := engine.SendWR{ID: 7, Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{pools[0].SGE(out, 14+n)}}
	_, err = qps[0].Post([]engine.SendWR{wr})
	check(err)

	wc := make([]engine.Completion, 8)
	for i, name := range []string{"sender", "receiver"} {
		got, err := cqs[i].Poll(wc)
		check(err)
		for _, c := range wc[:got] {
			fmt.Printf("%s: request %d: %v, %d bytes\n", name, c.WRID, c.Status, c.ByteLen)
		}
	}
	// Output:
	// sender: request 7: SUCCESS, 0 bytes
	// receiver: request 0: SUCCESS, 81 bytes
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
