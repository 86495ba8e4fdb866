package tidy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestTheTreeIsTidy applies every rule to this repository.
func TestTheTreeIsTidy(t *testing.T) {
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.goes) < 10 {
		t.Fatalf("only %d Go files found: this is not the repository", len(tree.goes))
	}
	for _, f := range tree.Check() {
		t.Error(f)
	}
	for dir := range mayImport {
		if !slices.ContainsFunc(tree.goFiles(), func(g *goFile) bool { return g.dir() == dir }) {
			t.Errorf("the import table has a row for %s, which has no Go file", dir)
		}
	}
}

// cleanArchitecture is that document of the clean tree.
const cleanArchitecture = "Back to [the start](../README.md).\n\n" +
	"| `ring` | rings | barrier |\n" +
	"| `engine/softnic/wire` | wires | tso, clock, csum, barrier, proto; no more |\n" +
	"| `raw` | frames | engine, tso, proto, csum |\n" +
	"| `cmd/pktgen` | a command | results, cli, traffic |\n" +
	"| `docs`, `scripts` | words | |\n"

// clean is a small tree that breaks no rule.
func clean() map[string]string {
	return map[string]string{
		"README.md":                  "See [the architecture](docs/ARCHITECTURE.md#tree) and [Go](https://example.com/x).\n",
		"docs/ARCHITECTURE.md":       cleanArchitecture,
		"Makefile":                   "demo:\n\tscripts/demo.sh\n",
		"scripts/demo.sh":            "#!/bin/sh\ndir=$(mktemp -d /tmp/demo.XXX)\n",
		"ring/doc.go":                "// Package ring has rings.\npackage ring\n",
		"ring/sq.go":                 "package ring\n\nimport _ \"" + module + "/internal/barrier\"\n\n// TODO(#7): wrap.\nfunc f() {}\n",
		"ring/ring_unsafe.go":        "package ring\n\nimport _ \"unsafe\"\n",
		"ring/sq_amd64.s":            "// assembly\n",
		"ring/sq_test.go":            "package ring\n\nimport _ \"github.com/gopacket/gopacket\"\n",
		"raw/doc.go":                 "// Package raw is one.\npackage raw\n",
		"engine/softnic/wire/doc.go": "// Package wire is one.\npackage wire\n",
		"cmd/pktgen/main.go":         "// Command x is one.\npackage main\n\nimport _ \"github.com/spf13/cobra\"\n\nfunc main() {}\n",
	}
}

func findings(t *testing.T, files map[string]string) []Finding {
	t.Helper()
	fsys := fstest.MapFS{}
	for p, s := range files {
		fsys[p] = &fstest.MapFile{Data: []byte(s)}
	}
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree.Check()
}

func TestACleanTreeHasNoFindings(t *testing.T) {
	for _, f := range findings(t, clean()) {
		t.Error(f)
	}
}

// breaks has, for each rule, changes to the clean tree that break that rule and no other.
var breaks = []struct{ rule, name, path, text string }{
	{"import", "a ring that knows the engine", "ring/cq.go", "package ring\n\nimport _ \"" + module + "/engine\"\n"},
	{"import", "a wire that sees rings", "engine/softnic/wire/doc.go", "// Package wire is one.\npackage wire\n\nimport _ \"" + module + "/ring\"\n"},
	{"import", "raw that picks a provider", "raw/doc.go", "// Package raw is one.\npackage raw\n\nimport _ \"" + module + "/engine/softnic\"\n"},
	{"import", "a command that uses the oracle of the tests", "cmd/pktgen/y.go", "package main\n\nimport _ \"" + module + "/internal/frametest\"\n"},
	{"import", "a package nobody placed", "docs/doc.go", "// Package docs is new.\npackage docs\n"},
	{"architecture", "a directory without a row", "docs/more/x.txt", "x\n"},
	{"architecture", "a row without a directory", "docs/ARCHITECTURE.md", cleanArchitecture + "| `ud` | datagrams | engine, exchange |\n"},
	{"architecture", "other imports than the table's", "docs/ARCHITECTURE.md", strings.Replace(cleanArchitecture, "barrier", "nothing", 1)},
	{"dependency", "gopacket per packet", "ring/cq.go", "package ring\n\nimport _ \"github.com/gopacket/gopacket/layers\"\n"},
	{"dependency", "a new module", "ring/cq.go", "package ring\n\nimport _ \"example.com/new\"\n"},
	{"unsafe", "unsafe in an ordinary file", "ring/cq.go", "package ring\n\nimport _ \"unsafe\"\n"},
	{"unsafe", "unsafe in a test", "ring/cq_test.go", "package ring\n\nimport _ \"unsafe\"\n"},
	{"cgo", "cgo outside the header package", "ring/cq.go", "package ring\n\nimport \"C\"\n"},
	{"marker", "a marker in Go", "ring/cq.go", "package ring\n\n// TODO: later.\n"},
	{"marker", "a marker in a script", "scripts/demo.sh", "#!/bin/sh\n# FIXME\n"},
	{"marker", "a marker in a document", "docs/ARCHITECTURE.md", cleanArchitecture + "XXX: finish\n"},
	{"name", "a file of types", "ring/cq_types.go", "package ring\n"},
	{"name", "a package of helpers", "ring/sq.go", "package helpers\n"},
	{"function-length", "a function longer than a screen", "ring/cq.go", "package ring\n\nfunc g() {\n" + strings.Repeat("\tg()\n", 70) + "}\n"},
	{"dead-go", "a file no build takes", "ring/cq.go", "//go:build never\n\npackage ring\n"},
	{"dead-go", "assembly no build takes", "ring/cq_riscv64.s", "// assembly\n"},
	{"dead-doc", "a document without a link", "docs/ALONE.md", "Nobody comes here.\n"},
	{"dead-script", "a script nobody runs", "scripts/alone.sh", "#!/bin/sh\n"},
	{"broken-link", "a link to nowhere", "docs/ARCHITECTURE.md", cleanArchitecture + "[gone](GONE.md)\n"},
	{"machine-text", "a path of one machine", "scripts/demo.sh", "#!/bin/sh\ncd /ro" + "ot/src\n"},
	{"package-doc", "a package without a comment", "ring/doc.go", "package ring\n"},
	{"package-doc", "a package comment in the wrong file", "ring/cq.go", "// Package ring again.\npackage ring\n"},
	{"example", "a type that no example shows", "ring/cq.go", "package ring\n\ntype CQ struct{}\n"},
}

func TestEachRuleCanFail(t *testing.T) {
	broken := map[string]bool{}
	for _, b := range breaks {
		broken[b.rule] = true
		t.Run(b.rule+"/"+b.name, func(t *testing.T) {
			files := clean()
			files[b.path] = b.text
			got := findings(t, files)
			if len(got) == 0 {
				t.Fatal("no finding")
			}
			for _, f := range got {
				if f.Rule != b.rule {
					t.Errorf("found %v, want only the rule %s", f, b.rule)
				}
			}
		})
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("rule %s is not broken by any case", r.name)
		}
	}
}
