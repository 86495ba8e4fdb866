// Package engine gives queue pairs with verbs semantics over any device that
// reads mlx5 rings.
//
//	SendWR ─ QP.Post ──▶ ring.SQ ──▶ record, doorbell ─▶ Backend (softnic, ...)
//	RecvWR ─ QP.PostRecv ▶ ring.RQ ─▶ record ──────────▶    │
//	Image ── Rearm ────▶ ring.SQ                            │
//	Completion ◀ CQ.Poll ◀ ring.CQ ◀─────────────────── CQEs┘
//
// Everything in front of the doorbell is concrete and lives here; everything
// that varies sits behind Backend. Ring memory and packet memory come from the
// backend.
//
// A CQ and all QPs on it have one owner goroutine: Post, PostRecv, Poll, Modify
// and images belong to it. Race builds check that with one CAS on entry, and
// report ErrOwner. Register, AllocPool and the constructors may be called from
// any goroutine.
//
// Misuse is an error everywhere: a nil, zero or closed object answers with one
// that wraps EINVAL, never with a crash.
package engine
