package traffic

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestClosedNamespaceNamesThePrivilege(t *testing.T) {
	const uri, privilege, name = "packet:vb?netns=x", "netns= needs CAP_SYS_ADMIN; run as root, or once: sudo setcap cap_net_raw,cap_sys_admin+ep ", "use a name of `ip netns list` or a path"
	for _, tc := range []struct {
		err  error
		want string
	}{
		{unix.EPERM, privilege},
		{unix.EACCES, privilege},
		{fmt.Errorf("failed to set into network namespace 5 while creating netlink socket: %v", unix.EPERM), privilege},
		{unix.ENOENT, name},
	} {
		got := namespaceError(uri, "x", tc.err).Error()
		if !strings.HasPrefix(got, `port "packet:vb?netns=x": cannot enter namespace "x" (`+tc.err.Error()+"); "+tc.want) {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
	open := openError(uri, fmt.Errorf("device: %s: wire: packet:vb: %w", uri, unix.EPERM)).Error()
	if !strings.Contains(open, "CAP_SYS_ADMIN") || !strings.Contains(open, "cap_sys_admin+ep") {
		t.Error(open)
	}
}
