//go:build !race && amd64 && !purego

package csum

const raceBuild = false
