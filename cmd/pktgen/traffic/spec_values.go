package traffic

// Values is the set and order of a header field's values: one, a range, or a
// list. The zero value means "not given".
type Values struct {
	mode  Mode
	first u128
	count uint64 // values from first on; list has its own length
	list  []u128
	text  string
	v6    bool // addresses: IPv6
}

// Mode is the order in which values are taken.
type Mode uint8

// The orders. Values of a random field depend on the seed and the index alone.
const (
	Inc Mode = iota
	Dec
	Rand
)

type u128 struct{ hi, lo uint64 }
