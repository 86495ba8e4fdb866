// Package peers holds the benchmarks whose baseline is a module that nothing
// else here needs. It is a module of its own, so that none of them stands in
// the main one's go.mod.
//
//	go -C bench/peers-go test -bench .
package peers
