package distributed_test

import (
	"context"
	"encoding/binary"
	"fmt"

	"ringmaster/distributed"
	"ringmaster/distributed/memory"
)

// Two ranks in one process add a vector each: every rank calls AllSum with its own
// vector, and every rank gets the sum.
func ExampleGroup() {
	groups := memory.Groups(2)
	sums, done := [2]string{}, make(chan error)
	for rank, g := range groups {
		go func() {
			x := binary.LittleEndian.AppendUint32(nil, uint32(10*rank+1))
			x = binary.LittleEndian.AppendUint32(x, uint32(10*rank+2))
			err := g.AllSum(context.Background(), x, x, distributed.Int32)
			sums[rank] = fmt.Sprintf("rank %d has %d %d", rank, binary.LittleEndian.Uint32(x), binary.LittleEndian.Uint32(x[4:]))
			done <- err
		}()
	}
	for range groups {
		if err := <-done; err != nil {
			fmt.Println(err)
		}
	}
	for rank, g := range groups {
		fmt.Println(sums[rank])
		_ = g.Close()
	}
	// Output:
	// rank 0 has 12 14
	// rank 1 has 12 14
}
