package parallel_test

import (
	"fmt"

	"ringmaster/parallel"
)

// Two ranks divide a small model. Rank 1 has three times the share of rank 0, so it
// gets three quarters of everything that is divided.
func ExamplePlace() {
	sizes := parallel.Sizes{Experts: 16, Heads: 4, Shared: 2, Vocabulary: 1000}
	for _, share := range []parallel.Share{parallel.ShareExperts, parallel.ShareAll} {
		placement, err := parallel.Place(share, sizes, []float64{1, 3})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("--share %v divides %s\n", share, share.Divides())
		for rank, part := range placement {
			fmt.Printf("rank %d: experts %v, heads %v, output rows %v\n", rank, part.Experts, part.Heads, part.Vocabulary)
		}
	}
	// Output:
	// --share experts divides experts
	// rank 0: experts [0, 4), heads [0, 4), output rows [0, 1000)
	// rank 1: experts [4, 16), heads [0, 4), output rows [1000, 1000)
	// --share all divides experts, attention, shared expert and output head
	// rank 0: experts [0, 4), heads [0, 1), output rows [0, 250)
	// rank 1: experts [4, 16), heads [1, 4), output rows [250, 1000)
}
