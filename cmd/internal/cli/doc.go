// Package cli is what the commands have in common: exit codes, signals, one
// line for an error, and where output goes.
//
//	main ──▶ Execute ──▶ cobra ──▶ command ──▶ library package
//	           ▲                      │
//	           └── exit code ◀── error┘
package cli
