//go:build race

package traffic

// manyFlows is smaller here: the run beyond the window takes 1,024 frames of each flow.
const manyFlows = 100
