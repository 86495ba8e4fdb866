package ud

import (
	"testing"

	"github.com/bluering/bluering/internal/nstest"
)

// The tests have a loopback interface of their own, whose ports nobody else uses.
func TestMain(m *testing.M) { nstest.Main(m) }
