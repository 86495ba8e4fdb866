package tidy

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// architecture is the document with the table of directories.
const architecture = "docs/ARCHITECTURE.md"

// tableRow is a row of that table: directories in backticks, what they hold, and what a package there may import.
var tableRow = regexp.MustCompile("^\\| (`[^|]+`) \\| [^|]+ \\| ?([^|]*?) ?\\|$")

// checkArchitecture wants a row for each directory, none for what does not exist, and in it the imports of mayImport.
func checkArchitecture(t *Tree, report func(string, int, string, ...any)) {
	dirs := map[string]bool{}
	for _, p := range t.paths {
		dirs[path.Dir(p)] = true
	}
	delete(dirs, ".")
	shown := map[string]bool{}
	eachLine(string(t.text[architecture]), 1, func(line int, s string) {
		m := tableRow.FindStringSubmatch(s)
		if m == nil {
			return
		}
		for dir := range strings.SplitSeq(m[1], ", ") {
			dir = strings.Trim(dir, "`")
			shown[dir] = true
			if !dirs[dir] {
				report(architecture, line, "directory %s does not exist", dir)
			}
			allowed, placed := mayImport[dir]
			if want := inWords(allowed); placed && !sameWords(m[2], want) {
				report(architecture, line, "%s may import %s", dir, want)
			}
		}
	})
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if !shown[dir] && !strings.HasPrefix(dir, ".") { // an editor's, perhaps
			report(architecture, 0, "directory %s has no row", dir)
		}
	}
}

// inWords is how the table writes a row of mayImport.
func inWords(allowed []string) string {
	switch {
	case len(allowed) == 0:
		return "nothing"
	case allowed[0] == "...":
		return "anything"
	}
	var names []string
	for _, p := range allowed {
		names = append(names, path.Base(p))
	}
	return strings.Join(names, ", ")
}

// sameWords compares two lists in any order, up to a semicolon.
func sameWords(a, b string) bool {
	list := func(s string) []string {
		s, _, _ = strings.Cut(s, ";")
		return slices.Sorted(slices.Values(strings.Split(s, ", ")))
	}
	return slices.Equal(list(a), list(b))
}
