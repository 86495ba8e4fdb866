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
	hint := plainCause(uri, err)
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, fs.ErrPermission):
		if _, ns, ok := kernelPort(uri); ok && ns != "" {
			hint = "netns= needs CAP_SYS_ADMIN beside CAP_NET_RAW; run as root, or once: sudo setcap cap_net_raw,cap_sys_admin+ep " + executable()
			break
		}
		hint = "raw sockets need a privilege; run as root, or once: sudo setcap cap_net_raw+ep " + executable()
	case errors.Is(err, syscall.ENODEV):
		if ifname, _, ok := kernelPort(uri); ok {
			hint = fmt.Sprintf("no interface %q; `pktgen list` shows those that exist", ifname)
		}
	case errors.Is(err, syscall.ENETDOWN), strings.HasSuffix(hint, "interface is down"):
		if ifname, _, ok := kernelPort(uri); ok {
			hint = fmt.Sprintf("the interface is down; set it up first: sudo ip link set %s up", ifname)
		}
	}
	return &UsageError{Thing: "port", Value: uri, Hint: hint, Cause: err}
}

// plainCause is err's text without the layers' names in front and without
// repeating the port.
func plainCause(uri string, err error) string {
	name, _, _ := strings.Cut(uri, "?")
	s := err.Error()
	for again := true; again; {
		again = false
		for _, prefix := range []string{"device: ", "wire: ", "bad parameter: ", uri + ": ", uri + " ", name + ": ", name + " "} {
			if rest, ok := strings.CutPrefix(s, prefix); ok {
				s, again = rest, true
			}
		}
	}
	return s
}

func executable() string {
	if path, err := os.Executable(); err == nil && !strings.Contains(path, "/go-build") {
		return path
	}
	return "$(which pktgen)"
}
