// Package acceptance runs the pktgen program as its users do and lets others judge what it did: the kernel's
// interface counters, scapy and tshark. It holds tests only.
//
//	go test ./cmd/pktgen/acceptance
package acceptance
