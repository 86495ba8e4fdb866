package tidy

import (
	"go/build"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// configurations are the builds that .ci/run makes. A Go or assembly file in none of them is dead.
var configurations = func() []build.Context {
	var out []build.Context
	for _, target := range []string{"linux/amd64", "linux/arm64", "linux/s390x", "darwin/arm64", "windows/amd64", "freebsd/amd64"} {
		for _, tags := range [][]string{nil, {"purego"}, {"race"}, {"mlx5hdr"}} {
			c := build.Default
			c.GOOS, c.GOARCH, _ = strings.Cut(target, "/")
			c.CgoEnabled = true
			c.BuildTags = tags
			out = append(out, c)
		}
	}
	return out
}()

func checkDeadGo(t *Tree, report func(string, int, string, ...any)) {
	for _, p := range t.paths {
		if ext := path.Ext(p); ext != ".go" && ext != ".s" || underscored(path.Dir(p)) {
			continue
		}
		if !t.builtSomewhere(p) {
			report(p, 0, "no build includes this file")
		}
	}
}

func (t *Tree) builtSomewhere(p string) bool {
	for _, c := range configurations {
		c.OpenFile = func(name string) (io.ReadCloser, error) { return t.fsys.Open(name) }
		c.JoinPath = path.Join
		if ok, err := c.MatchFile(path.Dir(p), path.Base(p)); ok && err == nil {
			return true
		}
	}
	return false
}

// link finds the targets of markdown links: [text](target) and [text](target#part).
var link = regexp.MustCompile(`\]\(([^)\s#]+)(#[^)\s]*)?\)`)

// links are the targets inside the tree that a document names, as paths of the tree.
func (t *Tree) links(doc string, f func(line int, target string)) {
	eachLine(string(t.text[doc]), 1, func(line int, s string) {
		for _, m := range link.FindAllStringSubmatch(s, -1) {
			if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
				f(line, path.Join(path.Dir(doc), m[1]))
			}
		}
	})
}

// checkDeadDocs wants every document reachable from README.md by links.
func checkDeadDocs(t *Tree, report func(string, int, string, ...any)) {
	seen := map[string]bool{}
	var visit func(doc string)
	visit = func(doc string) {
		if seen[doc] || path.Ext(doc) != ".md" {
			return
		}
		seen[doc] = true
		t.links(doc, func(_ int, target string) { visit(target) })
	}
	visit("README.md")
	for _, p := range t.paths {
		if path.Ext(p) == ".md" && !seen[p] {
			report(p, 0, "no link leads here from README.md")
		}
	}
}

func checkLinks(t *Tree, report func(string, int, string, ...any)) {
	for _, p := range t.paths {
		if path.Ext(p) != ".md" {
			continue
		}
		t.links(p, func(line int, target string) {
			if _, err := fs.Stat(t.fsys, target); err != nil {
				report(p, line, "link to %s, which does not exist", target)
			}
		})
	}
}

// checkDeadScripts wants every script named by the Makefile, by .ci/run, by another script or by a document.
func checkDeadScripts(t *Tree, report func(string, int, string, ...any)) {
	for _, p := range t.paths {
		if !strings.HasPrefix(p, "scripts/") {
			continue
		}
		used := false
		for _, q := range t.paths {
			reader := q == "Makefile" || strings.HasPrefix(q, ".ci/") || strings.HasPrefix(q, "scripts/") || path.Ext(q) == ".md"
			if reader && q != p && strings.Contains(string(t.text[q]), path.Base(p)) {
				used = true
			}
		}
		if !used {
			report(p, 0, "nothing runs this script")
		}
	}
}
