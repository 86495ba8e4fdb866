//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "peers: what it compares exists on Linux only")
	os.Exit(1)
}
