package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Results holds the verdicts of a run, by ID and profile.
type Results map[string][3]Verdict

// Expected gives what Items says.
func Expected() Results {
	r := Results{}
	for _, i := range Items {
		r[i.ID] = i.Want
	}
	return r
}

// Count gives the verdicts of a profile by kind.
func (r Results) Count(profile int) (n [numKinds]int) {
	for _, v := range r {
		if k := v[profile].Kind; k < numKinds {
			n[k]++
		}
	}
	return n
}

// JSON gives what was judged, in the order of Items.
func (r Results) JSON(device string) ([]byte, error) {
	type line struct {
		ID       string            `json:"id"`
		Claim    string            `json:"claim"`
		Verdicts map[string]string `json:"verdicts"`
	}
	out := struct {
		Device string                    `json:"device"`
		Counts map[string]map[string]int `json:"counts"`
		Items  []line                    `json:"items"`
	}{Device: device, Counts: map[string]map[string]int{}}
	for p, name := range Profiles {
		seen := r.Count(p)
		if seen == ([numKinds]int{}) {
			continue
		}
		counts := map[string]int{}
		for k, n := range seen {
			counts[Kind(k).String()] = n
		}
		out.Counts[name.String()] = counts
	}
	for _, i := range Items {
		l := line{i.ID, i.Claim, map[string]string{}}
		verdicts, there := r[i.ID]
		for p, v := range verdicts {
			if there && v.Kind != NotJudged {
				l.Verdicts[Profiles[p].String()] = v.String()
			}
		}
		if len(l.Verdicts) > 0 {
			out.Items = append(out.Items, l)
		}
	}
	b, err := json.MarshalIndent(out, "", "  ")
	return append(b, '\n'), err
}

const preamble = `# Conformance

Written by ` + "`go test ./engine/conformance -args -update`" + ` from a run over ` + "`loop:`" + `; a test fails when it is not what a run
yields. Package ` + "`engine/conformance`" + ` has the claims and the tests; ` + "`-device URI -peer URI`" + ` judges other devices. The
profiles are how the software NIC settles the points on which public devices disagree: ` + "`?profile=strict`" + ` (default) follows
the InfiniBand specification and the kernel's verbs core, ` + "`rxe`" + ` kernel rxe, ` + "`mlx5`" + ` libmlx5 and a ConnectX. Sources of the
claims: the manual pages of libibverbs (ibv_create_qp, ibv_modify_qp, ibv_post_send, ibv_post_recv, ibv_post_srq_ops,
ibv_poll_cq, ibv_create_flow), the InfiniBand Architecture Specification volume 1 (chapters 10 and 11), and Linux's
drivers/infiniband (core/verbs.c, core/uverbs_cmd.c, sw/rdmavt, sw/rxe, hw/mlx5).

`

// Markdown gives docs/CONFORMANCE.md: counts first, then the points, then every item.
func (r Results) Markdown() string {
	var b strings.Builder
	b.WriteString(preamble)
	b.WriteString("| verdict |")
	for _, p := range Profiles {
		fmt.Fprintf(&b, " %v |", p)
	}
	b.WriteString("\n|---|--:|--:|--:|\n")
	for k := Kind(0); k < numKinds; k++ {
		fmt.Fprintf(&b, "| %v |", k)
		for p := range Profiles {
			fmt.Fprintf(&b, " %d |", r.Count(p)[k])
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "| items | %d | %d | %d |\n\n", len(Items), len(Items), len(Items))
	b.WriteString(`- *pass*: the claim holds as it stands.
- *deviates(D-n)*: point n below is settled otherwise in this profile, and that is what was seen.
- *not expressible*: the interface cannot say it; the suite fails should it learn to.
- *not built*: the capability named is missing; the suite fails as soon as a device reports it.

## What items wait for

`)
	for _, c := range Capabilities {
		fmt.Fprintf(&b, "- **%s**: %s\n", c.Name, c.About)
	}
	b.WriteString("\n## Points on which profiles differ\n\n| D | point | strict | rxe | mlx5 | items |\n|---|---|---|---|---|---|\n")
	for _, p := range Points {
		fmt.Fprintf(&b, "| D-%d | %s | %s | %s | %s | %s |\n", p.N, p.About, p.Strict, p.RXE, p.MLX5, p.Items)
	}
	r.items(&b)
	return b.String()
}

func (r Results) items(b *strings.Builder) {
	section := byte(0)
	for _, i := range Items {
		if i.ID[0] != section {
			section = i.ID[0]
			fmt.Fprintf(b, "\n## %c. %s\n\n| ID | claim | strict | rxe | mlx5 |\n|---|---|---|---|---|\n", section, Sections[section])
		}
		v := r[i.ID]
		fmt.Fprintf(b, "| %s | %s | %v | %v | %v |\n", i.ID, i.Claim, v[0], v[1], v[2])
	}
}
