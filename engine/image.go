package engine
type Image struct{}
func (m *Image) restart() {}
func (m *Image) release() error { return nil }
