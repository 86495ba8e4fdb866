package tidy

import (
	"go/ast"
	"go/doc"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// apparatus are packages that exist to judge others, besides those of testOnly.
var apparatus = []string{"engine/conformance", "engine/simulation", "bench", "bench/liveframes", "bench/peers", "bench/peers-go",
	"cmd/pktgen/acceptance"}

// A name is a name declared at the top of a package.
type name struct{ dir, ident string }

// A surface is what packages declare: the types, and for each name the types that its declaration names.
type surface struct {
	types   map[name]token.Pos         // the exported ones
	decls   map[name][]name            // functions, constants, variables, aliases
	members map[name]map[string][]name // of a type: methods and fields
	embeds  map[name][]name
}

// checkExamples wants every exported type in some example that go test runs: by its name, or as the type of something
// that the example uses, which is a function, constant, method or field whose declaration names the type. Methods and
// fields count when their type is itself seen in the same example.
func checkExamples(t *Tree, report func(string, int, string, ...any)) {
	s := surface{map[name]token.Pos{}, map[name][]name{}, map[name]map[string][]name{}, map[name][]name{}}
	for _, g := range t.goFiles() {
		if !g.isTest() && !underscored(g.dir()) {
			s.read(g)
		}
	}
	seen := map[name]bool{}
	for _, e := range t.examples() {
		for n := range s.seenIn(e) {
			seen[n] = true
		}
	}
	for _, n := range s.inOrder() {
		if !seen[n] {
			p := t.fset.Position(s.types[n])
			report(p.Filename, p.Line, "no example that runs shows %s.%s", path.Base(n.dir), n.ident)
		}
	}
}

// inOrder are the types as they stand in the tree.
func (s *surface) inOrder() []name {
	return slices.SortedFunc(maps.Keys(s.types), func(a, b name) int { return int(s.types[a] - s.types[b]) })
}

// exampled reports whether a package's types are for others to use.
func exampled(g *goFile) bool {
	dir := g.dir()
	return g.ast.Name.Name != "main" && !slices.Contains(strings.Split(dir, "/"), "internal") &&
		!slices.Contains(testOnly, dir) && !slices.Contains(apparatus, dir)
}

func (s *surface) read(g *goFile) {
	refs := g.refs()
	for _, decl := range g.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				s.decls[name{g.dir(), d.Name.Name}] = refs(d.Type)
			} else if of := refs(d.Recv); len(of) > 0 {
				s.member(of[0], d.Name.Name, refs(d.Type))
			}
		case *ast.GenDecl:
			var inherited []name // of a constant that repeats the one before it
			for _, spec := range d.Specs {
				switch v := spec.(type) {
				case *ast.ValueSpec:
					if v.Type != nil || v.Values != nil {
						inherited = refs(v.Type)
					}
					for _, id := range v.Names {
						s.decls[name{g.dir(), id.Name}] = inherited
					}
				case *ast.TypeSpec:
					s.readType(g, v, refs)
				}
			}
		}
	}
}

func (s *surface) readType(g *goFile, v *ast.TypeSpec, refs func(ast.Node) []name) {
	n := name{g.dir(), v.Name.Name}
	if v.Name.IsExported() && exampled(g) {
		s.types[n] = v.Pos()
	}
	var fields *ast.FieldList
	switch u := v.Type.(type) {
	case *ast.StructType:
		fields = u.Fields
	case *ast.InterfaceType:
		fields = u.Methods
	default:
		s.decls[n] = refs(u) // an alias, a slice, a function: who has it has them
		return
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			s.member(n, id.Name, refs(f.Type))
		}
		if len(f.Names) == 0 {
			s.embeds[n] = append(s.embeds[n], refs(f.Type)...)
		}
	}
}

func (s *surface) member(of name, ident string, types []name) {
	if s.members[of] == nil {
		s.members[of] = map[string][]name{}
	}
	s.members[of][ident] = types
}

// An example is what one example function mentions, with the functions and types of its test files that it uses.
type example struct {
	names map[name]bool   // qualified ones, and those of its own package
	parts map[string]bool // behind a dot, or keys of a literal
}

// seenIn are the names that an example shows.
func (s *surface) seenIn(e example) map[name]bool {
	seen := map[name]bool{}
	var see func(n name)
	see = func(n name) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, r := range s.decls[n] {
			see(r)
		}
		for ident, types := range s.members[n] {
			for _, r := range types {
				if e.parts[ident] {
					see(r)
				}
			}
		}
		for _, r := range s.embeds[n] {
			if s.promotes(r, e.parts) {
				see(r)
			}
		}
	}
	for n := range e.names {
		see(n)
	}
	return seen
}

// promotes reports whether one of the parts may be a member of the embedded type n.
func (s *surface) promotes(n name, parts map[string]bool) bool {
	if parts[n.ident] {
		return true
	}
	for ident := range s.members[n] {
		if parts[ident] {
			return true
		}
	}
	return false
}

// A piece is a declaration in a test file.
type piece struct {
	g    *goFile
	node ast.Node
}

// examples are those of the tree that go test runs. What an example uses of its own test files is part of it.
func (t *Tree) examples() []example {
	type scope struct{ dir, pkg string }
	pieces := map[scope]map[string][]piece{} // by the name of the function, or of the type with its methods
	running := map[scope][]string{}
	for _, g := range t.goFiles() {
		if !g.isTest() {
			continue
		}
		in := scope{g.dir(), g.ast.Name.Name}
		if pieces[in] == nil {
			pieces[in] = map[string][]piece{}
		}
		for ident, nodes := range g.declared() {
			for _, n := range nodes {
				pieces[in][ident] = append(pieces[in][ident], piece{g, n})
			}
		}
		running[in] = append(running[in], g.running()...)
	}
	var out []example
	for in, idents := range running {
		for _, ident := range idents {
			out = append(out, gather(pieces[in], ident))
		}
	}
	return out
}

// declared are the file's functions and types by name, a method under the name of its type.
func (g *goFile) declared() map[string][]ast.Node {
	refs := g.refs()
	out := map[string][]ast.Node{}
	for _, decl := range g.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			ident := d.Name.Name
			if d.Recv != nil {
				of := refs(d.Recv)
				if len(of) == 0 {
					continue
				}
				ident = of[0].ident
			}
			out[ident] = append(out[ident], d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.TypeSpec); ok {
					out[v.Name.Name] = append(out[v.Name.Name], v)
				}
			}
		}
	}
	return out
}

// gather is the example that begins with the function called ident.
func gather(pieces map[string][]piece, ident string) example {
	e := example{map[name]bool{}, map[string]bool{}}
	done := map[string]bool{}
	for todo := []string{ident}; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		if done[next] {
			continue
		}
		done[next] = true
		for _, p := range pieces[next] {
			todo = append(todo, p.g.mentions(p.node, &e)...)
		}
	}
	return e
}

// running are the names of the file's examples that go test runs: those with an output to compare, be it none.
func (g *goFile) running() (out []string) {
	for _, e := range doc.Examples(g.ast) {
		if e.Output != "" || e.EmptyOutput {
			out = append(out, "Example"+e.Name)
		}
	}
	return out
}

// mentions adds what a declaration mentions to e, and returns its plain identifiers.
func (g *goFile) mentions(decl ast.Node, e *example) (plain []string) {
	imports := g.imports()
	ast.Inspect(decl, func(n ast.Node) bool {
		switch v := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := v.X.(*ast.Ident); ok && imports[x.Name] != "" {
				e.names[name{imports[x.Name], v.Sel.Name}] = true
				return false
			}
			e.parts[v.Sel.Name] = true
		case *ast.KeyValueExpr:
			if k, ok := v.Key.(*ast.Ident); ok {
				e.parts[k.Name] = true
			}
		case *ast.Ident:
			plain = append(plain, v.Name)
			if !strings.HasSuffix(g.ast.Name.Name, "_test") {
				e.names[name{g.dir(), v.Name}] = true
			}
		}
		return true
	})
	return plain
}

// imports are the module's packages that the file imports, by the names it has for them.
func (g *goFile) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range g.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		dir, ok := strings.CutPrefix(p, module+"/")
		if !ok {
			continue
		}
		if spec.Name != nil {
			out[spec.Name.Name] = dir
		} else {
			out[path.Base(dir)] = dir
		}
	}
	return out
}

// refs gives a function that lists the names a type expression is made of. A nil expression has none.
func (g *goFile) refs() func(ast.Node) []name {
	imports := g.imports()
	var list func(n ast.Node) []name
	list = func(n ast.Node) (out []name) {
		if n == nil {
			return nil
		}
		ast.Inspect(n, func(n ast.Node) bool {
			switch v := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := v.X.(*ast.Ident); ok && imports[x.Name] != "" {
					out = append(out, name{imports[x.Name], v.Sel.Name})
				}
				return false
			case *ast.Field:
				out = append(out, list(v.Type)...) // its name is no type
				return false
			case *ast.Ident:
				out = append(out, name{g.dir(), v.Name})
			}
			return true
		})
		return out
	}
	return list
}
