module github.com/bluering/bluering/bench/peers-go

go 1.26.0

require github.com/bluering/bluering v0.0.0

require (
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/sys v0.50.0 // indirect
	gvisor.dev/gvisor v0.0.0-20250503011706-39ed1f5ac29c
)

replace github.com/bluering/bluering => ../..
