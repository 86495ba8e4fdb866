package tidy

import (
	"path"
	"strconv"
	"strings"
)

const module = "github.com/bluering/bluering"

// mayImport says which packages of this module the non-test files of a package may import. A key ending in /...
// speaks for the tree below it, a value ending in /... for every package below that; the longest key decides. A
// package without a row is a finding: a new package is placed in the picture before it is written. Tests are free.
var mayImport = map[string][]string{
	"internal/barrier": {},
	"internal/clock":   {},
	"internal/csum":    {},
	"internal/proto":   {},
	"internal/pin":     {},
	"internal/tidy":    {},
	"internal/testrun": {},

	"internal/frametest": {"internal/proto", "internal/csum"},
	"internal/nstest":    {},
	"internal/vmtest":    {"internal/nstest"},

	"ring":                  {"internal/barrier"},
	"ring/internal/mlx5hdr": {},
	"tso":                   {"internal/proto", "internal/csum"},

	"engine":         {"ring", "internal/clock", "internal/pin", "engine/latency"},
	"engine/latency": {},
	"engine/softnic": {"engine", "ring", "tso", "internal/proto", "internal/csum", "internal/clock", "internal/pin", "engine/softnic/wire"},

	"engine/softnic/wire": {"internal/clock", "internal/proto", "internal/csum", "tso"},

	"engine/mlx5":         {"engine", "ring", "engine/internal/ibv"},
	"engine/verbs":        {"engine", "ring", "engine/internal/ibv"},
	"engine/internal/ibv": {},
	"engine/device":       {"engine", "engine/softnic", "engine/softnic/wire", "engine/mlx5", "engine/verbs", "internal/clock"},

	"raw":         {"engine", "tso", "internal/proto", "internal/csum"},
	"ud":          {"engine", "tso", "internal/proto", "internal/csum", "ud/exchange"},
	"ud/interop":  {"..."}, // tests only
	"ud/exchange": {"internal/proto", "internal/csum"},

	"cmd/...":   {"cmd/...", "raw", "ud", "ud/exchange", "engine", "engine/device", "engine/latency", "internal/clock", "internal/proto", "internal/csum"},
	"bench/...": {"..."},

	"engine/conformance": {"..."}, // tests only
	"engine/simulation":  {"..."}, // tests only
	"bench":              {"..."},
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
	"github.com/klauspost/cpuid/v2":           {"internal/clock/", "internal/csum/", "cmd/", "bench/"},
	"github.com/spf13/cobra":                  {"cmd/"},
	"github.com/spf13/pflag":                  {"cmd/"},
	"github.com/vishvananda/netlink":          {"engine/softnic/wire/", "internal/nstest/", "internal/vmtest/", "cmd/", "bench/"},
	"github.com/vishvananda/netns":            {"engine/softnic/wire/", "internal/nstest/", "cmd/", "bench/"},
	"golang.org/x/sys": {"ring/", "internal/clock/", "internal/pin/", "internal/nstest/", "internal/vmtest/", "engine/", "cmd/",
		"bench/"},
}

// covers reports whether pattern, an exact path or a tree ending in /..., covers p.
func covers(pattern, p string) bool {
	if pattern == "..." {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return p == tree || strings.HasPrefix(p, tree+"/")
	}
	return pattern == p
}

func coveredByAny(patterns []string, p string) bool {
	for _, pattern := range patterns {
		if covers(pattern, p) {
			return true
		}
	}
	return false
}

// row is the entry of mayImport that speaks for the package in dir.
func row(dir string) (allowed []string, ok bool) {
	best := -1
	for key, value := range mayImport {
		if covers(key, dir) && len(key) > best {
			best, allowed, ok = len(key), value, true
		}
	}
	return allowed, ok
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
		allowed, ok := row(g.dir())
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
			if !coveredByAny(allowed, own) {
				report(g.path, t.line(spec.Pos()), "%s may not import %s", g.dir(), own)
			}
			if coveredByAny(testOnly, own) && !coveredByAny(testOnly, g.dir()) {
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
		if strings.Contains(path.Base(g.path), "_unsafe") || g.dir() == "ring/internal/mlx5hdr" || g.dir() == "engine/internal/ibv" {
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
