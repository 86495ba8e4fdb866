package tidy

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/bluering/bluering"

// mayImport says which packages of this module the non-test files of a package may import; "..." is any. A package
// without a row is a finding: a new package is placed in the picture before it is written. Tests are free.
// docs/ARCHITECTURE.md shows the same, by the last names.
var mayImport = map[string][]string{
	"internal/barrier": {},
	"internal/clock":   {},
	"internal/csum":    {},
	"internal/proto":   {},
	"internal/pin":     {},
	"internal/tidy":    {},
	"internal/testrun": {},

	"internal/frametest": {},
	"internal/nstest":    {},
	"internal/vmtest":    {"internal/nstest"},

	"ring":                  {"internal/barrier"},
	"ring/internal/mlx5hdr": {},
	"tso":                   {"internal/proto", "internal/csum"},

	"engine":         {"ring", "internal/clock", "internal/pin", "engine/latency"},
	"engine/latency": {},
	"engine/softnic": {"engine", "ring", "tso", "internal/barrier", "internal/proto", "internal/csum", "internal/clock", "internal/pin", "engine/softnic/wire"},

	"engine/softnic/wire": {"internal/barrier", "internal/clock", "internal/proto", "internal/csum", "tso"},
	"engine/device":       {"engine", "engine/softnic", "engine/softnic/wire", "internal/clock"},

	"engine/conformance": {"engine"},
	"engine/simulation":  {},

	"raw":         {"engine", "tso", "internal/proto", "internal/csum"},
	"ud":          {"engine", "ud/exchange"},
	"ud/exchange": {},
	"ud/interop":  {},

	"cmd/internal/cli":     {"cmd/internal/results"},
	"cmd/internal/results": {"engine/latency", "internal/clock"},

	"cmd/pktgen": {"cmd/pktgen/traffic", "cmd/internal/cli", "cmd/internal/results"},
	"cmd/pktgen/traffic": {"raw", "engine", "engine/device", "engine/latency", "internal/clock", "internal/proto",
		"internal/csum", "cmd/internal/results"},
	"cmd/pktgen/acceptance": {},

	"cmd/udecho":      {"cmd/udecho/echo", "ud/exchange", "cmd/internal/cli", "cmd/internal/results"},
	"cmd/udecho/echo": {"ud", "ud/exchange", "engine", "engine/device", "engine/latency", "internal/clock", "cmd/internal/results"},

	"bench":            {},
	"bench/liveframes": {},
	"bench/peers":      {"..."},
	"bench/peers-go":   {},
}

// testOnly are packages that only tests, and other test-only packages, may import.
var testOnly = []string{"internal/frametest", "internal/nstest", "internal/tidy", "internal/vmtest", "ring/internal/mlx5hdr"}

// mayDepend says where the non-test files may use each dependency. A pattern is a directory prefix ending in a slash,
// or a glob of path.Match over the whole path.
var mayDepend = map[string][]string{
	"github.com/cilium/ebpf": {"engine/softnic/wire/xdp*.go", "bench/"},
	"github.com/gopacket/gopacket": {"raw/template*.go", "cmd/", "bench/", "internal/frametest/",
		"engine/softnic/wire/pcap*.go", "engine/softnic/wire/tap*.go"},
	"github.com/HdrHistogram/hdrhistogram-go": {"engine/latency/", "bench/"},
	"github.com/klauspost/cpuid/v2":           {"internal/csum/", "internal/proto/", "cmd/", "bench/"},
	"github.com/spf13/cobra":                  {"cmd/"},
	"github.com/vishvananda/netlink":          {"engine/softnic/wire/", "internal/nstest/", "internal/vmtest/", "cmd/", "bench/"},
	"github.com/vishvananda/netns":            {"cmd/", "bench/"},
	"golang.org/x/sys":                        {"internal/pin/", "internal/nstest/", "internal/vmtest/", "engine/", "cmd/", "bench/"},
}

// allows reports whether one of the packages, "..." being all, is p.
func allows(packages []string, p string) bool {
	return slices.Contains(packages, "...") || slices.Contains(packages, p)
}

// underscored reports whether the go command ignores the directory, as it does those of code generators.
func underscored(dir string) bool {
	return strings.HasPrefix(dir, "_") || strings.Contains(dir, "/_")
}

func checkImports(t *Tree, report func(string, int, string, ...any)) {
	for _, g := range t.goFiles() {
		if g.isTest() || underscored(g.dir()) {
			continue
		}
		allowed, ok := mayImport[g.dir()]
		if !ok {
			report(g.path, 0, "package %s has no row in the import table", g.dir())
			continue
		}
		for _, spec := range g.ast.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			own, inModule := strings.CutPrefix(name, module+"/")
			if !inModule || own == g.dir() {
				continue
			}
			if !allows(allowed, own) {
				report(g.path, t.line(spec.Pos()), "%s may not import %s", g.dir(), own)
			}
			if slices.Contains(testOnly, own) && !slices.Contains(testOnly, g.dir()) {
				report(g.path, t.line(spec.Pos()), "%s is for tests only", own)
			}
		}
	}
}

func checkDependencies(t *Tree, report func(string, int, string, ...any)) {
	for _, g := range t.goFiles() {
		if g.isTest() || underscored(g.dir()) {
			continue
		}
		for _, spec := range g.ast.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if strings.HasPrefix(name, module) || !strings.Contains(strings.SplitN(name, "/", 2)[0], ".") {
				continue // ours, or the standard library
			}
			if where, ok := dependencyRow(name); !ok {
				report(g.path, t.line(spec.Pos()), "%s is not in the dependency table", name)
			} else if !placed(where, g.path) {
				report(g.path, t.line(spec.Pos()), "%s is used outside %s", name, strings.Join(where, " "))
			}
		}
	}
}

func dependencyRow(name string) ([]string, bool) {
	for dep, where := range mayDepend {
		if name == dep || strings.HasPrefix(name, dep+"/") {
			return where, true
		}
	}
	return nil, false
}

func placed(where []string, p string) bool {
	for _, pattern := range where {
		if strings.HasSuffix(pattern, "/") && strings.HasPrefix(p, pattern) {
			return true
		}
		if ok, _ := path.Match(pattern, p); ok {
			return true
		}
	}
	return false
}

func checkUnsafe(t *Tree, report func(string, int, string, ...any)) {
	for _, g := range t.goFiles() {
		if strings.Contains(path.Base(g.path), "_unsafe") || g.dir() == "ring/internal/mlx5hdr" {
			continue
		}
		for _, spec := range g.ast.Imports {
			if spec.Path.Value == `"unsafe"` {
				report(g.path, t.line(spec.Pos()), "unsafe belongs in a file whose name contains _unsafe")
			}
		}
	}
}

func checkCgo(t *Tree, report func(string, int, string, ...any)) {
	for _, g := range t.goFiles() {
		if g.dir() == "ring/internal/mlx5hdr" {
			continue
		}
		for _, spec := range g.ast.Imports {
			if spec.Path.Value == `"C"` {
				report(g.path, t.line(spec.Pos()), "cgo belongs in ring/internal/mlx5hdr only")
			}
		}
	}
}
