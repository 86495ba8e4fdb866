package conformance_test

import (
	"fmt"

	"github.com/bluering/bluering/engine/conformance"
)

// What the items claim, and what a device of each profile makes of them.
func Example() {
	results := conformance.Expected()
	for i := range conformance.Items {
		it := &conformance.Items[i]
		if it.ID == "C-15" || it.ID == "M-01" {
			fmt.Println(it.ID, it.Built(), results[it.ID])
		}
	}
	mlx5 := results["C-15"][2]
	if mlx5.Kind == conformance.Deviates {
		fmt.Println("there:", conformance.Points[mlx5.Points[0]-1].MLX5)
	}
	if waits := results["M-01"][0]; waits.Kind == conformance.NotBuilt {
		fmt.Println("waits for:", waits.Needs.About)
	}
	// Output:
	// C-15 true [pass pass deviates(D-16)]
	// M-01 false [not built(tag matching) not built(tag matching) not built(tag matching)]
	// there: posted; completes with LOC_LEN_ERR
	// waits for: shared receive queues that match tags (`FeatureTagMatching`)
}
