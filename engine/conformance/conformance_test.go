package conformance

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/clock"
)

var (
	flagDevice  = flag.String("device", "loop:", "device to judge")
	flagPeer    = flag.String("peer", "", "the device at the other end of its wire; a loop needs none")
	flagProfile = flag.String("profile", "", "judge this profile only")
	flagJSON    = flag.String("json", "", "write the verdicts to this file")
	flagUpdate  = flag.Bool("update", false, "write the document from this run")
)

const document = "../../docs/CONFORMANCE.md"

// ownParam is a parameter of a device string that each test sets as it needs.
var ownParam = regexp.MustCompile(`[?&](profile|inline)\b`)

// cases has the test of each item that is built.
var cases = map[string]func(*trial){}

func register(section map[string]func(*trial)) bool {
	maps.Copy(cases, section)
	return true
}

// overLoop reports whether the run judges what the document is about.
func overLoop() bool { return *flagDevice == "loop:" }

// judge runs an item in a profile and gives what was seen.
func judge(t *testing.T, i *Item, profile int) (v Verdict) {
	v = i.Want[profile]
	if v.Kind == NotBuilt || v.Kind == NotExpressible {
		return v
	}
	x := &trial{T: t, profile: profile, points: map[int]bool{}}
	defer func() {
		if t.Failed() {
			v = Verdict{Kind: Fail}
		}
	}()
	cases[i.ID](x)
	v = Verdict{}
	if len(x.points) > 0 {
		v = Verdict{Kind: Deviates, Points: slices.Sorted(maps.Keys(x.points))}
	}
	return v
}

func TestConformance(t *testing.T) {
	if !overLoop() && !strings.HasPrefix(*flagDevice, "loop:") && *flagPeer == "" {
		t.Fatalf("-device %s needs -peer", *flagDevice)
	}
	if own := ownParam.FindString(*flagDevice + " " + *flagPeer); own != "" {
		t.Fatalf("-device %s: the suite sets %s itself; choose the profile by -profile", *flagDevice, own[1:])
	}
	results, judged := Results{}, 0
	for i := range Items {
		it := &Items[i]
		seen := [3]Verdict{{Kind: NotJudged}, {Kind: NotJudged}, {Kind: NotJudged}}
		t.Run(it.ID, func(t *testing.T) {
			for p, name := range Profiles {
				if *flagProfile != "" && *flagProfile != name.String() {
					continue
				}
				t.Run(name.String(), func(t *testing.T) {
					judged++
					defer func() { // a failing test leaves by its own way
						if t.Failed() {
							seen[p] = Verdict{Kind: Fail}
						}
					}()
					seen[p] = judge(t, it, p)
					if overLoop() && !reflect.DeepEqual(seen[p], it.Want[p]) {
						t.Errorf("%s: seen %v, the table has %v", it.Claim, seen[p], it.Want[p])
					}
				})
			}
		})
		results[it.ID] = seen
	}
	writeResults(t, results, judged)
}

// writeResults writes what flags ask for. A run of some items only writes no document.
func writeResults(t *testing.T, r Results, judged int) {
	if *flagJSON != "" {
		b, err := r.JSON(*flagDevice)
		if err == nil {
			err = os.WriteFile(*flagJSON, b, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if !*flagUpdate {
		return
	}
	if !overLoop() || judged != len(Items)*len(Profiles) {
		t.Fatalf("the document is written from a run of all items over loop: in all profiles, this was %d over %s", judged, *flagDevice)
	}
	if err := os.WriteFile(document, []byte(r.Markdown()), 0o644); err != nil {
		t.Error(err)
	}
}

// counts are the verdicts in the order of kinds: pass, deviates, not expressible, not built, fail.
var counts = [3][numKinds]int{
	strict: {208, 1, 27, 27, 0},
	rxe:    {196, 13, 27, 27, 0},
	mlx5:   {195, 14, 27, 27, 0},
}

// A change of a verdict is seen in review twice: here and in the document.
func TestVerdictCounts(t *testing.T) {
	for p, name := range Profiles {
		if got := Expected().Count(p); got != counts[p] {
			t.Errorf("%v: %v, want %v", name, got, counts[p])
		}
	}
}

// TestConformance fails where a run and the table differ, so the document is what a run yields if it is what the
// table yields.
func TestDocumentIsWhatARunYields(t *testing.T) {
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if want := Expected().Markdown(); string(b) != want {
		t.Errorf("%s is stale: go test ./engine/conformance -args -update", document)
	}
}

// Nothing stays behind when what it waits for is built.
func TestNothingIsLeftBehind(t *testing.T) {
	names := apiNames()
	for _, p := range Profiles {
		for _, c := range Capabilities {
			if has, why := present(t, p, c, names); has {
				t.Errorf("%v: %s is there: %s; yet these wait for it: %v", p, c.Name, why, waiting(p, c))
			}
		}
	}
	for _, it := range Items {
		for _, n := range names {
			if it.Unless != nil && it.Unless.MatchString(n[strings.IndexByte(n, '.')+1:]) {
				t.Errorf("%s: not expressible, yet there is %s", it.ID, n)
			}
		}
	}
}

// waiting gives the items that wait for a capability. One that nothing waits for any more leaves the list of
// Capabilities.
func waiting(p engine.Profile, c *Capability) (ids []string) {
	for _, it := range Items {
		if it.Want[p].Needs == c {
			ids = append(ids, it.ID)
		}
	}
	return ids
}

// A capability that could not be seen would let items stay behind.
func TestEveryCapabilityCanBeSeen(t *testing.T) {
	all := engine.Caps{Offloads: ^engine.Offload(0), Features: ^engine.Feature(0)}
	for _, c := range Capabilities {
		if !c.InCaps(&all) || c.InCaps(&engine.Caps{}) {
			t.Errorf("%s: not told by Caps", c.Name)
		}
		if len(waiting(engine.ProfileStrict, c)) == 0 {
			t.Errorf("nothing waits for %s", c.Name)
		}
	}
}

// present reports whether a device has a capability: its Caps say so, or the engine's interface has a name for it.
func present(t *testing.T, p engine.Profile, c *Capability, names []string) (has bool, why string) {
	x := &trial{T: t, profile: int(p), points: map[int]bool{}}
	e := x.lone(engine.QPConfig{})
	defer x.close()
	caps := e.dev.Caps()
	if c.InCaps(&caps) {
		return true, "Caps of " + caps.Name
	}
	for _, n := range names {
		if c.Names != nil && c.Names.MatchString(n[strings.IndexByte(n, '.')+1:]) {
			return true, n
		}
	}
	return false, ""
}

// apiNames gives the methods and fields of what the engine hands out and takes, as Type.Name.
func apiNames() (names []string) {
	for _, v := range []any{(*engine.Device)(nil), (*engine.PD)(nil), (*engine.CQ)(nil), (*engine.QP)(nil), (*engine.AH)(nil),
		(*engine.Pool)(nil), (*engine.Flow)(nil), (*engine.Poller)(nil), (*engine.SRQ)(nil), (*engine.Channel)(nil), (*engine.RSS)(nil)} {
		r := reflect.TypeOf(v)
		for i := range r.NumMethod() {
			names = append(names, r.Elem().Name()+"."+r.Method(i).Name)
		}
	}
	for _, v := range []any{engine.QPConfig{}, engine.QPAttr{}, engine.SendWR{}, engine.RecvWR{}, engine.FlowRule{}, engine.Match{}, engine.SRQConfig{},
		engine.RSSConfig{}} {
		r := reflect.TypeOf(v)
		for i := range r.NumField() {
			names = append(names, r.Name()+"."+r.Field(i).Name)
		}
	}
	return names
}

func TestTheTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	last := ""
	for _, it := range Items {
		if seen[it.ID] || it.ID <= last || Sections[it.ID[0]] == "" || it.Claim == "" {
			t.Errorf("%s: twice, out of order or empty", it.ID)
		}
		seen[it.ID], last = true, it.ID
		if it.Built() != (cases[it.ID] != nil) {
			t.Errorf("%s: built %v, has a test %v", it.ID, it.Built(), cases[it.ID] != nil)
		}
		for p, v := range it.Want {
			for _, n := range v.Points {
				if n < 1 || n > len(Points) {
					t.Errorf("%s: there is no point %d", it.ID, n)
				} else if !slices.Contains(strings.Fields(Points[n-1].Items), it.ID) {
					t.Errorf("%s: point %d does not name it", it.ID, n)
				}
			}
			if v.Kind == NotBuilt && !slices.Contains(Capabilities, v.Needs) || v.Kind == NotExpressible && v.Reason == "" {
				t.Errorf("%s, %v: no reason", it.ID, Profiles[p])
			}
		}
	}
	for id := range cases {
		if !seen[id] {
			t.Errorf("test of %s, which is no item", id)
		}
	}
	for n, p := range Points {
		if p.N != n+1 {
			t.Errorf("point %d is called D-%d", n+1, p.N)
		}
		for _, id := range strings.Fields(p.Items) {
			if !seen[id] {
				t.Errorf("point D-%d is judged by %s, which is no item", p.N, id)
			}
		}
	}
}

// A run of a few items says nothing of the others.
func TestOnlyWhatWasJudgedIsWritten(t *testing.T) {
	none := Verdict{Kind: NotJudged}
	r := Results{"A-01": {{}, none, {Kind: Fail}}, "A-02": {none, none, none}}
	b, err := r.JSON("loop:")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Counts map[string]map[string]int
		Items  []struct {
			ID       string
			Verdicts map[string]string
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Items) != 1 || got.Items[0].ID != "A-01" || !maps.Equal(got.Items[0].Verdicts, map[string]string{"strict": "pass", "mlx5": "fail"}) {
		t.Errorf("%d items, the first %+v", len(got.Items), got.Items[:min(1, len(got.Items))])
	}
	if len(got.Counts) != 2 || got.Counts["strict"]["pass"] != 1 || got.Counts["mlx5"]["fail"] != 1 || got.Counts["strict"]["fail"] != 0 {
		t.Errorf("counts %v", got.Counts)
	}
}

// The checklist's numbers, without gaps but for B, which starts its second part at 20.
func TestEveryNumberHasAnItem(t *testing.T) {
	last := map[byte]int{'A': 24, 'B': 28, 'C': 32, 'D': 16, 'E': 30, 'F': 18, 'G': 11, 'H': 15, 'I': 13, 'J': 30, 'K': 14, 'L': 7, 'M': 27}
	next := map[byte]int{}
	for _, it := range Items {
		n, err := strconv.Atoi(it.ID[2:])
		if s := it.ID[0]; err != nil || n != next[s]+1 && !(s == 'B' && n == 20 && next[s] == 17) {
			t.Errorf("%s follows %d", it.ID, next[s])
		}
		next[it.ID[0]] = n
	}
	if !maps.Equal(next, last) {
		t.Errorf("last items %v, want %v", next, last)
	}
}

func newClock(at int64) *clock.Virtual {
	c := new(clock.Virtual)
	c.Set(at)
	return c
}
