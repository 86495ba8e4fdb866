package tidy

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// maxFunctionLines is what fits on a screen.
const maxFunctionLines = 70

var (
	// A marker is allowed with the number of an issue behind it, as in "TODO(#12)".
	marker      = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b(\(?#\d+)?`)
	markerInDoc = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b[:(]`)

	// Text that belongs to the machine somebody built on. Pieces are joined here so that this file does not match.
	machineText = regexp.MustCompile(strings.Join([]string{
		`/wo` + `rk/`, `/ro` + `ot/`, `/fa` + `rm/`, `/ho` + `me/[a-z]`,
		`proxy\.gol` + `ang\.org`, `sum\.gol` + `ang\.org`, `deb\.deb` + `ian\.org`, `registry\.np` + `mjs\.org`,
		`sub` + `agent`,
	}, "|"))

	bannedWords = []string{"util", "utils", "common", "helper", "helpers", "types", "manager"}
)

func checkMarkers(t *Tree, report func(string, int, string, ...any)) {
	for _, p := range t.paths {
		if g := t.goes[p]; g != nil {
			for _, group := range g.ast.Comments {
				for _, c := range group.List {
					eachLine(c.Text, t.line(c.Pos()), func(line int, s string) { reportMarker(p, line, s, report) })
				}
			}
			continue
		}
		eachLine(string(t.text[p]), 1, func(line int, s string) {
			if path.Ext(p) == ".md" {
				if m := markerInDoc.FindString(s); m != "" {
					report(p, line, "leftover %s", m)
				}
				return
			}
			if strings.Contains(s, "mktemp") {
				return // its template is a row of X
			}
			reportMarker(p, line, s, report)
		})
	}
}

func reportMarker(p string, line int, s string, report func(string, int, string, ...any)) {
	for _, m := range marker.FindAllStringSubmatch(s, -1) {
		if m[2] == "" {
			report(p, line, "%s without the number of an issue", m[1])
		}
	}
}

func eachLine(s string, first int, f func(line int, s string)) {
	for i, l := range strings.Split(s, "\n") {
		f(first+i, l)
	}
}

func checkNames(t *Tree, report func(string, int, string, ...any)) {
	for _, p := range t.paths {
		for part := range strings.SplitSeq(p, "/") {
			stem := strings.TrimSuffix(part, path.Ext(part))
			for word := range strings.SplitSeq(stem, "_") {
				for _, banned := range bannedWords {
					if strings.EqualFold(word, banned) {
						report(p, 0, "a name says what is inside; %q does not", word)
					}
				}
			}
		}
	}
	for _, g := range t.goFiles() {
		for _, banned := range bannedWords {
			if g.ast.Name.Name == banned {
				report(g.path, t.line(g.ast.Name.Pos()), "package %s: a name says what is inside", banned)
			}
		}
	}
}

func checkFunctionLength(t *Tree, report func(string, int, string, ...any)) {
	for _, g := range t.goFiles() {
		if g.isTest() || g.generated() {
			continue
		}
		for _, decl := range g.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if n := t.line(f.End()) - t.line(f.Pos()) + 1; n > maxFunctionLines {
				report(g.path, t.line(f.Pos()), "%s has %d lines, %d fit a screen", f.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func checkMachineText(t *Tree, report func(string, int, string, ...any)) {
	for _, p := range t.paths {
		if p == "go.sum" {
			continue
		}
		eachLine(string(t.text[p]), 1, func(line int, s string) {
			if m := machineText.FindString(s); m != "" {
				report(p, line, "%q belongs to one machine, not to the project", m)
			}
		})
	}
}

// checkPackageDocs wants the package comment in doc.go, and nowhere else. A command may keep it beside func main.
func checkPackageDocs(t *Tree, report func(string, int, string, ...any)) {
	documented := map[string]string{} // directory -> file with the package comment
	first := map[string]*goFile{}     // directory -> its first non-test file
	for _, g := range t.goFiles() {
		if g.isTest() || underscored(g.dir()) {
			continue
		}
		if first[g.dir()] == nil {
			first[g.dir()] = g
		}
		if g.ast.Doc == nil {
			continue
		}
		if other := documented[g.dir()]; other != "" {
			report(g.path, t.line(g.ast.Doc.Pos()), "a second package comment, %s has one", other)
		}
		documented[g.dir()] = g.path
		if g.ast.Name.Name != "main" && path.Base(g.path) != "doc.go" {
			report(g.path, t.line(g.ast.Doc.Pos()), "the package comment belongs in doc.go")
		}
	}
	for dir, g := range first {
		if documented[dir] == "" {
			report(g.path, 0, "package %s has no package comment (doc.go)", g.ast.Name.Name)
		}
	}
}
