package softnic

import (
	"testing"

	"github.com/bluering/bluering/engine"
)

func TestLookupHoldsAtBothEdges(t *testing.T) {
	m := newMTT()
	mem := make([]byte, 100)
	for i := range mem {
		mem[i] = byte(i)
	}
	key, addr, err := m.register(7, mem, engine.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	roKey, roAddr, err := m.register(7, make([]byte, 100), 0)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		key  uint32
		addr uint64
		n    uint32
		pd   uint32
		need engine.Access
		ok   bool
	}{
		{"whole", key, addr, 100, 7, 0, true},
		{"first byte", key, addr, 1, 7, 0, true},
		{"last byte", key, addr + 99, 1, 7, 0, true},
		{"with right", key, addr, 100, 7, engine.LocalWrite, true},
		{"one before", key, addr - 1, 1, 7, 0, false},
		{"starts one early", key, addr - 1, 101, 7, 0, false},
		{"ends one late", key, addr, 101, 7, 0, false},
		{"last byte and one more", key, addr + 99, 2, 7, 0, false},
		{"one past", key, addr + 100, 1, 7, 0, false},
		{"length near 2^32", key, addr + 1, ^uint32(0), 7, 0, false},
		{"address near 2^64", key, ^uint64(0), 8, 7, 0, false},
		{"other domain", key, addr, 1, 8, 0, false},
		{"other generation", key + 1, addr, 1, 7, 0, false},
		{"other region's address", key, roAddr, 1, 7, 0, false},
		{"missing right", roKey, roAddr, 1, 7, engine.LocalWrite, false},
		{"unknown index", 0xffffff00, addr, 1, 7, 0, false},
		{"terminator key", 0x100, addr, 1, 7, 0, false},
		{"key zero", 0, addr, 1, 0, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := m.lookup(c.key, c.addr, c.n, c.pd, c.need)
			if (got != nil) != c.ok {
				t.Fatalf("lookup found %d bytes, want found=%v", len(got), c.ok)
			}
			if c.ok && (len(got) != int(c.n) || got[0] != byte(c.addr-addr)) {
				t.Fatalf("lookup returned %d bytes from %d", len(got), got[0])
			}
		})
	}
}

func TestDeregisteredKeyNamesNothing(t *testing.T) {
	m := newMTT()
	seen := map[uint32]bool{}
	for i := range 2000 {
		key, addr, err := m.register(1, make([]byte, 10), 0)
		if err != nil {
			t.Fatal(err)
		}
		if seen[key] {
			t.Fatalf("registration %d got key 0x%x again", i, key)
		}
		seen[key] = true
		if err := m.deregister(key); err != nil {
			t.Fatal(err)
		}
		if m.lookup(key, addr, 1, 1, 0) != nil {
			t.Fatalf("key 0x%x is still good after deregister", key)
		}
		if m.deregister(key) == nil {
			t.Fatalf("key 0x%x could be deregistered twice", key)
		}
	}
	if m.live != 0 {
		t.Fatalf("%d registrations left", m.live)
	}
	if _, _, err := m.register(1, nil, 0); err == nil {
		t.Fatal("empty memory was registered")
	}
}
