package ring

// apart gives a copy of v that shares no cache line with what was or will be
// allocated beside it: what one processor writes at each packet would slow
// another that has its neighbour. Two lines, because processors fetch them in
// pairs.
func apart[T any](v T) *T {
	p := new(struct {
		v T
		_ [128]byte
	})
	p.v = v
	return &p.v
}
