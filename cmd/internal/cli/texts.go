package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Texts are those flags of a command that have a text.
type Texts struct {
	of    *cobra.Command
	names []string // in the order they were added
	text  map[string]*string
}

// NewTexts gives the command none yet.
func NewTexts(of *cobra.Command) *Texts { return &Texts{of: of, text: map[string]*string{}} }

// Add makes the flag --name, and -short unless that is empty.
func (t *Texts) Add(name, short, value, usage string) {
	t.names = append(t.names, name)
	t.text[name] = t.of.Flags().StringP(name, short, value, usage)
}

// Of is the flag's text, empty for a flag that the command does not have.
func (t *Texts) Of(name string) string {
	if p := t.text[name]; p != nil {
		return *p
	}
	return ""
}

// Given reports whether the flag stands on the command line.
func (t *Texts) Given(name string) bool { return t.of.Flags().Changed(name) }

// Each calls set with each text that is not empty, until one is an error. One that was given as empty is an error, too:
// mostly it is a variable of a script that is not set.
func (t *Texts) Each(set func(name, text string) error) error {
	for _, name := range t.names {
		text := *t.text[name]
		if strings.TrimSpace(text) == "" && t.Given(name) {
			return results.Usage(name, "", "is empty; give a value or leave --"+name+" out")
		}
		if text == "" {
			continue
		}
		if err := set(name, text); err != nil {
			return err
		}
	}
	return nil
}
