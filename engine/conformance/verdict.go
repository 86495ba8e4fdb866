package conformance

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/bluering/bluering/engine"
)

// Kind is the kind of a verdict, from best to worst.
type Kind uint8

// The kinds.
const (
	Pass           Kind = iota // the claim holds
	Deviates                   // it holds as the profile settles a point on which devices disagree
	NotExpressible             // the interface has no way to say it
	NotBuilt                   // what it is about does not exist yet
	Fail                       // it does not hold
	numKinds
	NotJudged // it was left out, or skipped: no verdict at all
)

// String gives the word of the document.
func (k Kind) String() string {
	words := [numKinds]string{"pass", "deviates", "not expressible", "not built", "fail"}
	if k < numKinds {
		return words[k]
	}
	return "not judged"
}

// Verdict is the outcome of an item in one profile.
type Verdict struct {
	Kind   Kind
	Points []int       // Deviates: numbers of Points
	Reason string      // NotExpressible
	Needs  *Capability // NotBuilt
}

// String gives the verdict as it stands in the document, such as "deviates(D-4)".
func (v Verdict) String() string {
	switch v.Kind {
	case Deviates:
		names := make([]string, len(v.Points))
		for i, p := range v.Points {
			names[i] = fmt.Sprintf("D-%d", p)
		}
		return fmt.Sprintf("deviates(%s)", strings.Join(names, ", "))
	case NotExpressible:
		return fmt.Sprintf("not expressible(%s)", v.Reason)
	case NotBuilt:
		return fmt.Sprintf("not built(%s)", v.Needs.Name)
	}
	return v.Kind.String()
}

// Capability is what an item that is not built waits for.
type Capability struct {
	Name  string
	About string
	// InCaps reports whether a device says that it has it.
	InCaps func(*engine.Caps) bool
	// Names matches an exported method or field of package engine that only an engine with the capability has. nil:
	// the interface is there already, and only devices lack it.
	Names *regexp.Regexp
}

func feature(f engine.Feature) func(*engine.Caps) bool {
	return func(c *engine.Caps) bool { return c.Features&f != 0 }
}

// The capabilities.
var (
	needTM = &Capability{"tag matching", "shared receive queues that match tags (`FeatureTagMatching`)",
		feature(engine.FeatureTagMatching), regexp.MustCompile(`TagMatch|PostSRQOps`)}
)

// Capabilities lists all that items wait for.
var Capabilities = []*Capability{needTM}

// Item is one claim.
type Item struct {
	ID    string
	Claim string
	// Want has the verdicts by profile.
	Want [3]Verdict
	// Unless matches names of the engine's interface that make an item expressible after all.
	Unless *regexp.Regexp
}

// Profiles in the order of Item.Want.
var Profiles = [3]engine.Profile{engine.ProfileStrict, engine.ProfileRXE, engine.ProfileMLX5}

func item(id, claim string, v Verdict) Item {
	return Item{ID: id, Claim: claim, Want: [3]Verdict{v, v, v}}
}

// pass makes an item that holds as it is in every profile.
func pass(id, claim string) Item { return item(id, claim, Verdict{}) }

// not makes an item that cannot be said, as long as the interface has no name that unless matches.
func not(id, claim, reason, unless string) Item {
	i := item(id, claim, Verdict{Kind: NotExpressible, Reason: reason})
	if unless != "" {
		i.Unless = regexp.MustCompile(unless)
	}
	return i
}

// later makes an item that waits for a capability.
func later(id, claim string, c *Capability) Item {
	return item(id, claim, Verdict{Kind: NotBuilt, Needs: c})
}

func (i Item) strict(points ...int) Item { return i.with(0, Verdict{Kind: Deviates, Points: points}) }
func (i Item) rxe(points ...int) Item    { return i.with(1, Verdict{Kind: Deviates, Points: points}) }
func (i Item) mlx5(points ...int) Item   { return i.with(2, Verdict{Kind: Deviates, Points: points}) }

func (i Item) with(profile int, v Verdict) Item {
	i.Want[profile] = v
	return i
}

// Built reports whether the item has a test in some profile.
func (i *Item) Built() bool {
	for _, v := range i.Want {
		if v.Kind == Pass || v.Kind == Deviates {
			return true
		}
	}
	return false
}
