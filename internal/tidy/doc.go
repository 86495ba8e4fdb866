// Package tidy holds the rules of the source tree that no compiler checks, and a test that applies them.
//
//	files of the tree ──► Load ──► Tree ──► rules ──► findings ──► the test fails, naming file, line and rule
//
// The rules are the ones docs/ARCHITECTURE.md and docs/STYLE.md state in words: who may import whom, what stands where,
// where unsafe, cgo and each dependency may be, how long a function is, what a file is called, that every exported type
// stands in an example that runs. A rule that cannot fail is no rule, so the test also breaks each of them once, on a
// small tree made for it.
//
// Nothing imports this package.
package tidy
