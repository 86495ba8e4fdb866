//go:build !race && (darwin || freebsd)

package ring

const populate = 0

func hugeRegion(int) *Region { return nil }

func adviseHuge([]byte) {}
