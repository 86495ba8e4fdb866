//go:build !race && amd64 && !purego

package proto

const raceBuild = false
