package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"sort"
	"strings"
)

// A Finding is one place that breaks one rule.
type Finding struct {
	Rule string
	Path string
	Line int // 0: the file as a whole
	Text string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.Path, f.Rule, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.Path, f.Line, f.Rule, f.Text)
}

// A Tree is the text of a source tree with its Go files parsed. Paths have slashes and are relative to the root.
type Tree struct {
	fsys  fs.FS
	paths []string // sorted
	text  map[string][]byte
	goes  map[string]*goFile
	fset  *token.FileSet
}

// A goFile is one parsed Go file.
type goFile struct {
	path string
	ast  *ast.File
}

func (g *goFile) dir() string     { return path.Dir(g.path) }
func (g *goFile) isTest() bool    { return strings.HasSuffix(g.path, "_test.go") }
func (g *goFile) generated() bool { return ast.IsGenerated(g.ast) }

// Load reads the tree. Version control, build output and vectors are not read: nobody wrote them by hand.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{fsys: fsys, text: map[string][]byte{}, goes: map[string]*goFile{}, fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == ".git" || p == "bin" || p == ".cache" || path.Base(p) == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if p == ".git" { // which is a file in a work tree of its own
			return nil
		}
		return t.add(p)
	})
	sort.Strings(t.paths)
	return t, err
}

func (t *Tree) add(p string) error {
	b, err := fs.ReadFile(t.fsys, p)
	if err != nil {
		return err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return nil // not text
	}
	t.paths = append(t.paths, p)
	t.text[p] = b
	if path.Ext(p) != ".go" {
		return nil
	}
	f, err := parser.ParseFile(t.fset, p, b, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.goes[p] = &goFile{path: p, ast: f}
	return nil
}

// goFiles are the parsed files in the order of their paths.
func (t *Tree) goFiles() []*goFile {
	var out []*goFile
	for _, p := range t.paths {
		if g := t.goes[p]; g != nil {
			out = append(out, g)
		}
	}
	return out
}

func (t *Tree) line(p token.Pos) int { return t.fset.Position(p).Line }

// A rule looks at a whole tree.
type rule struct {
	name  string
	check func(t *Tree, report func(path string, line int, format string, args ...any))
}

// rules is every rule there is; the test breaks each once.
var rules = []rule{
	{"import", checkImports},
	{"architecture", checkArchitecture},
	{"dependency", checkDependencies},
	{"unsafe", checkUnsafe},
	{"cgo", checkCgo},
	{"marker", checkMarkers},
	{"name", checkNames},
	{"function-length", checkFunctionLength},
	{"dead-go", checkDeadGo},
	{"dead-doc", checkDeadDocs},
	{"dead-script", checkDeadScripts},
	{"broken-link", checkLinks},
	{"machine-text", checkMachineText},
	{"package-doc", checkPackageDocs},
	{"example", checkExamples},
}

// Check applies every rule.
func (t *Tree) Check() []Finding {
	var out []Finding
	for _, r := range rules {
		r.check(t, func(p string, line int, format string, args ...any) {
			out = append(out, Finding{r.name, p, line, fmt.Sprintf(format, args...)})
		})
	}
	return out
}
