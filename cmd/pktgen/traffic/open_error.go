package traffic

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// openError says why a port cannot be opened and what would help. It is a
// usage error: nothing was sent.
func openError(uri string, err error) error {
	if err == nil {
		return nil
	}
	var already *UsageError
	if errors.As(err, &already) {
		return err
	}
	hint := err.Error()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, fs.ErrPermission):
		hint = "raw sockets need a privilege; run as root, or once: sudo setcap cap_net_raw,cap_net_admin+ep " + executable()
	case errors.Is(err, syscall.ENODEV):
		if ifname, _, ok := kernelPort(uri); ok && !strings.Contains(hint, "list") {
			hint = fmt.Sprintf("no interface %q; `pktgen list` shows those that exist", ifname)
		}
	}
	return &UsageError{Thing: "port", Value: uri, Hint: hint, Cause: err}
}

func executable() string {
	if path, err := os.Executable(); err == nil && !strings.Contains(path, "/go-build") {
		return path
	}
	return "$(which pktgen)"
}
