//go:build !race

package traffic

// manyFlows is the larger number of flows that the proof is for.
const manyFlows = 10_000
