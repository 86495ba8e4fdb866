//go:build !linux

package wire

// alarm does not exist here: whoever waits does so by time.
type alarm struct{ fd int }

func newAlarm(bool) (alarm, error) { return alarm{-1}, nil }
func (a *alarm) ring()             {}
func (a *alarm) after(int64)       {}
func (a *alarm) drain()            {}
func (a *alarm) close()            {}
