//go:build !purego

package barrier

// ToDevice keeps earlier stores ahead of later ones, as a device sees them. It
// stands beside an atomic store or in front of StoreDoorbell.
//
//go:noescape
func ToDevice()

// FromDevice keeps earlier loads of memory written by a device ahead of later
// loads. It stands behind an atomic load.
//
//go:noescape
func FromDevice()

// StoreLoad keeps earlier stores ahead of later loads, as other processors see
// them: of StoreRelease and atomic loads, which arm64 keeps in order itself.
func StoreLoad() {}
