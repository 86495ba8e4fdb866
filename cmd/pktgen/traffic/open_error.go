package traffic

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/bluering/bluering/cmd/internal/results"
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
	hint := results.Reason(uri, err)
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, fs.ErrPermission):
		hint = privilegeHint(uri)
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

// privilegeHint says what the program lacks to open a port, and how to give it that.
func privilegeHint(uri string) string {
	need, caps := "raw sockets need a privilege", "cap_net_raw"
	if strings.HasPrefix(uri, "xdp:") {
		need, caps = "AF_XDP needs privileges", "cap_net_raw,cap_net_admin,cap_bpf"
	}
	if _, ns, ok := kernelPort(uri); ok && ns != "" {
		need, caps = "netns= needs CAP_SYS_ADMIN beside "+strings.ReplaceAll(strings.ToUpper(caps), ",", ", "), caps+",cap_sys_admin"
	}
	return need + "; run as root, or once: sudo setcap " + caps + "+ep " + executable()
}

func executable() string {
	if path, err := os.Executable(); err == nil && !strings.Contains(path, "/go-build") {
		return path
	}
	return "$(which pktgen)"
}
