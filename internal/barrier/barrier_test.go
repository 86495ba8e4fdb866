package barrier

import "testing"

func TestStoreDoorbellStoresTheWholeWord(t *testing.T) {
	regs := [3]uint64{0xa5a5a5a5a5a5a5a5, 0xa5a5a5a5a5a5a5a5, 0xa5a5a5a5a5a5a5a5}
	const v = 0x0102030405060708
	ToDevice()
	StoreDoorbell(&regs[1], v)
	FlushWC()
	FromDevice()
	want := [3]uint64{0xa5a5a5a5a5a5a5a5, v, 0xa5a5a5a5a5a5a5a5}
	if regs != want {
		t.Fatalf("registers %#x, want %#x", regs, want)
	}
}

func TestBarriersAllocateNothing(t *testing.T) {
	var reg uint64
	n := testing.AllocsPerRun(100, func() {
		ToDevice()
		StoreDoorbell(&reg, 1)
		FlushWC()
		FromDevice()
	})
	if n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}

func BenchmarkRing(b *testing.B) {
	var reg uint64
	for i := 0; b.Loop(); i++ {
		ToDevice()
		StoreDoorbell(&reg, uint64(i))
		FlushWC()
	}
}
