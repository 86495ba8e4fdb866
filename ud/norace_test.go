//go:build !race

package ud

const raceBuild = false
