package pin

import "errors"

// ErrUnsupported is wrapped by what this system cannot do.
var ErrUnsupported = errors.New("pin: not supported on this system")
