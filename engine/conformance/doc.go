// Package conformance judges devices by the semantics of verbs, item by item: what the manual pages of libibverbs, the
// InfiniBand specification and the kernel's verbs core say of objects, states, posting, memory, completions and raw
// packets. Each item has an ID, one claim, and a verdict in each profile.
//
//	Items ── claim, verdict, what is missing ──┐
//	                                           ├─ equal? ─► docs/CONFORMANCE.md, and JSON if asked for
//	TestConformance/ID/PROFILE over a device ──┘
//
//	go test ./engine/conformance                                 the loop, all profiles
//	go test ./engine/conformance -run TestConformance/C-15 -v    one item
//	go test ./engine/conformance -args -profile mlx5 -json FILE  one profile, verdicts as JSON
//	go test ./engine/conformance -args -device URI -peer URI     other devices; the document is not judged then
//	go test ./engine/conformance -args -update                   writes docs/CONFORMANCE.md
//
// An item that is not built names the capability it waits for. As soon as a device reports that capability, or the
// engine's interface has a name for it, the suite fails until the item has a test.
package conformance
