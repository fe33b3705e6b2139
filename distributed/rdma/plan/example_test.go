package plan_test

import (
	"fmt"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
)

// A chain of three ranks: rank 1 adds its block to that of rank 0, rank 2 adds
// its own, rounds, and sends the result back, four chunks one behind the other.
func Example_chain() {
	p, err := plan.New(plan.Config{Topology: plan.Ring(3, 1), Cap: 0},
		plan.Request{Op: plan.AllSum, DType: distributed.Float16, Bytes: 8192, Force: plan.Chain})
	if err != nil {
		panic(err)
	}
	fmt.Print(p.Programs[0])
	l := p.Programs[0].Local(1)
	for _, w := range l.Sends {
		fmt.Printf("rank 1 to %d:", w.Peer)
		c := l.Walk(w)
		for op, chunk, ok := c.Next(); ok; op, chunk, ok = c.Next() {
			o := &l.Ops[op]
			fmt.Printf(" %v+%d", o.Read.Space, o.Read.At(chunk))
		}
		fmt.Println()
	}
	// Output:
	// 0 +0 rank 0 -> 1  4096 in 4  src+0 -> slot
	// 1 +0 rank 1 reduce  4096 float32 in 4  slot of 0, src+0 -> scratch+0 (3 chunks)  after 0 2~3
	// 2 +1 rank 1 -> 2  4096 float32 in 4  scratch+0 (3 chunks) -> slot  after 1
	// 3 +1 rank 2 reduce  4096 in 4  slot of 2, src+0 -> dst+0  after 2
	// 4 +3 rank 2 -> 1  4096 in 4  dst+0 -> dst+0  after 3
	// 5 +4 rank 1 -> 0  4096 in 4  dst+0 -> dst+0  after 4
	// rank 1 to 2: scratch+0 scratch+4096 scratch+8192 scratch+0
	// rank 1 to 0: dst+0 dst+2048 dst+4096 dst+6144
}

// The exchange of a decode step in a mesh: every rank sends its vector to both
// others and reduces straight from the receive slots.
func Example_gather() {
	p, err := plan.New(plan.Config{Topology: plan.Mesh(3, 1), Cap: 7},
		plan.Request{Op: plan.AllSum, DType: distributed.Float16, Bytes: 4096})
	if err != nil {
		panic(err)
	}
	fmt.Print(p.Programs[0])
	// Output:
	// 0 +0 rank 0 -> 1  2048 in 1  src+0 -> slot
	// 1 +0 rank 0 -> 2  2048 in 1  src+0 -> slot
	// 2 +0 rank 1 -> 2  2048 in 1  src+0 -> slot
	// 3 +0 rank 1 -> 0  2048 in 1  src+0 -> slot
	// 4 +0 rank 2 -> 0  2048 in 1  src+0 -> slot
	// 5 +0 rank 2 -> 1  2048 in 1  src+0 -> slot
	// 6 +0 rank 0 reduce  2048 in 1  src+0, slot of 3, slot of 4 -> dst+0  after 0 1 3 4
	// 7 +0 rank 1 reduce  2048 in 1  slot of 0, src+0, slot of 5 -> dst+0  after 2 3 0 5
	// 8 +0 rank 2 reduce  2048 in 1  slot of 1, slot of 2, src+0 -> dst+0  after 4 5 1 2
}
