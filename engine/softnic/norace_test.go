//go:build !race

package softnic

const raceBuild = false
