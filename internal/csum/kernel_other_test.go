//go:build !amd64 || purego

package csum

func sumWith(_ kind, b []byte) uint32 { return Sum(b, 0) }

func copyWith(_ kind, dst, src []byte) uint32 { return Copy(dst, src, 0) }
