package groupplan_test

import (
	"fmt"

	"ringmaster/distributed/cluster"
	"ringmaster/groupplan"
	"ringmaster/model/builtin"
	"ringmaster/parallel"
)

// Two ranks, one with less memory than the other, divide the built-in model.
func ExampleOptions_Plan() {
	f, err := builtin.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	options := groupplan.Options{Model: f, Sequences: 4, MaxTokens: 64, Reduce: parallel.Exact,
		Share: groupplan.Share{Shares: groupplan.Shares{Numbers: []float64{2, 1}}}}
	members := []cluster.Hello{{Rank: 0, Threads: 1, Memory: 128 << 20}, {Rank: 1, Threads: 1, Memory: 40 << 20}}
	plan, err := options.Plan(members, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("context:", plan.Settings.Context)
	for i, part := range plan.Settings.Placement {
		fmt.Printf("rank %d: experts %v\n", members[i].Rank, part.Experts)
	}
	// Output:
	// context: 16384
	// rank 0: experts [0, 171)
	// rank 1: experts [171, 256)
}
