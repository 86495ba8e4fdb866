package vmtest

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernel is a kernel package, unpacked.
type kernel struct {
	image   string // the compressed kernel
	modules string // lib/modules/VERSION
}

// wanted are the modules of the machine, besides those they depend on. Without
// the crc32 ones rxe adds no link, but does not name them.
var wanted = []string{"crc32_generic", "crc32_pclmul", "virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay",
	"virtio_net", "veth", "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad"}

// fetchKernel gives the kernel that the package linux-image-amd64 stands for,
// from the cache or downloaded into it.
func fetchKernel() (*kernel, error) {
	out, err := exec.Command("apt-cache", "depends", "linux-image-amd64").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache depends linux-image-amd64: %w", err)
	}
	_, name, found := strings.Cut(string(out), "Depends: ")
	name, _, _ = strings.Cut(name, "\n")
	if name = strings.TrimSpace(name); !found || !strings.HasPrefix(name, "linux-image-") {
		return nil, fmt.Errorf("linux-image-amd64 depends on no kernel, but: %q", out)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "bluering-vm", name)
	if k, err := openKernel(dir); err == nil {
		return k, nil
	}
	if err := unpackKernel(name, dir); err != nil {
		return nil, err
	}
	return openKernel(dir)
}

// openKernel finds kernel and modules in an unpacked package.
func openKernel(dir string) (*kernel, error) {
	images, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	modules, _ := filepath.Glob(filepath.Join(dir, "lib", "modules", "*"))
	if len(images) != 1 || len(modules) != 1 {
		return nil, fmt.Errorf("%s: %d kernels and %d module trees, want one of each", dir, len(images), len(modules))
	}
	return &kernel{image: images[0], modules: modules[0]}, nil
}

// unpackKernel downloads a package and moves its content to dir at once, so
// that two who do it at the same time do not meet.
func unpackKernel(name, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".unpack")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	download := exec.Command("apt-get", "-q", "download", name)
	download.Dir = tmp
	if out, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download %s: %w: %s", name, err, lastLine(out))
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages, want one", name, len(debs))
	}
	root := filepath.Join(tmp, "root")
	if out, err := exec.Command("dpkg", "-x", debs[0], root).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg -x %s: %w: %s", filepath.Base(debs[0]), err, lastLine(out))
	}
	if err := os.Rename(root, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := openKernel(dir); there != nil {
			return err
		}
	}
	return nil
}

func lastLine(out []byte) []byte {
	out = bytes.TrimSpace(out)
	return out[bytes.LastIndexByte(out, '\n')+1:]
}

// moduleName is a module's name as dependencies spell it.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// order gives the files of the wanted modules with all they depend on, in the
// order in which they can be loaded. It reads what modprobe would.
func (k *kernel) order() ([]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(k.modules, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko") {
			files[moduleName(path)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(k.modules, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	done := map[string]bool{}
	for line := range strings.Lines(string(builtin)) {
		done[moduleName(strings.TrimSpace(line))] = true
	}
	var order []string
	var visit func(name string) error
	visit = func(name string) error {
		if done[name] {
			return nil
		}
		done[name] = true
		file, ok := files[name]
		if !ok {
			return fmt.Errorf("%s has no module %s", k.modules, name)
		}
		needs, err := dependsOn(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		order = append(order, file)
		return nil
	}
	for _, name := range wanted {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// dependsOn reads the modules that a module names in its section .modinfo.
func dependsOn(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(strings.ReplaceAll(string(list), "-", "_"), ","), nil
		}
	}
	return nil, nil
}
