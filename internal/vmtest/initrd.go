package vmtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// firstProgram is what the kernel starts: it loads the modules, puts an overlay
// over the shared root and makes the agent process 1 there.
const firstProgram = `#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t devtmpfs none /dev
while read -r m; do /bin/busybox insmod "/modules/$m" || echo "vmtest: insmod $m failed"; done </order
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=524288,cache=loose host /lower || echo "vmtest: no 9p root"
/bin/busybox mount -t tmpfs none /upper
/bin/busybox mkdir /upper/files /upper/scratch
/bin/busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/scratch none /new || echo "vmtest: no overlay"
/bin/busybox mount -t proc none /new/proc
/bin/busybox mount -t sysfs none /new/sys
/bin/busybox mount -t devtmpfs none /new/dev
/bin/busybox mount -t tmpfs none /new/run
exec /bin/busybox switch_root /new "$BLUERING_VM_AGENT"
`

// archive writes the format "newc" of cpio, which the kernel unpacks at boot.
type archive struct {
	bytes.Buffer
	inode int
}

func (a *archive) add(name string, mode uint32, data []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

// writeInitrd writes the first root file system of the machine.
func writeInitrd(file, busybox string, modules []string) error {
	const dir, program, text = 0o040755, 0o100755, 0o100644
	var a archive
	for _, d := range []string{"bin", "proc", "dev", "modules", "lower", "upper", "new"} {
		a.add(d, dir, nil)
	}
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	a.add("bin/busybox", program, shell)
	var order bytes.Buffer
	for _, m := range modules {
		data, err := os.ReadFile(m)
		if err != nil {
			return err
		}
		a.add("modules/"+filepath.Base(m), text, data)
		fmt.Fprintln(&order, filepath.Base(m))
	}
	a.add("order", text, order.Bytes())
	a.add("init", program, []byte(firstProgram))
	a.add("TRAILER!!!", 0, nil)
	return os.WriteFile(file, a.Bytes(), 0o600)
}
