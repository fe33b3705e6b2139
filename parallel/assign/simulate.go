package assign

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Routing draws the experts of rows: each of so many experts with equal probability, or
// some more often than others.
type Routing struct {
	Experts, Used int
	// Skew is the exponent of the probability by rank of popularity, 1/n^Skew, with
	// another order of the experts in each layer; 0 for equal ones.
	Skew float64
}

// Expected is what ranks compute on average in a layer.
type Expected struct {
	Experts, Slots []float64 // [ranks]
	// Busiest is how much longer the busiest rank takes than all would on average.
	Busiest float64
}

// Expect simulates some layers of steps of so many rows. It is a function of its
// arguments.
func (u Rule) Expect(r Routing, rows int, layers []int) Expected {
	a := u.By
	random := rand.New(rand.NewPCG(1, uint64(rows)))
	n := float64(len(layers))
	e := Expected{Experts: make([]float64, len(a.time)), Slots: make([]float64, len(a.time))}
	ids, to := make([]int32, rows*r.Used), make([]uint8, rows*r.Used)
	busiest, all := int64(0), int64(0)
	draw := r.sampler(random)
	for _, l := range layers {
		draw(ids)
		longest := int64(0)
		for rank, x := range u.Assign(to, l, ids, r.Used) {
			took := a.takes(uint8(rank), int64(ReadRows*x.Experts+x.Slots))
			longest, all = max(longest, took), all+took
			e.Experts[rank] += float64(x.Experts) / n
			e.Slots[rank] += float64(x.Slots) / n
		}
		busiest += longest
	}
	e.Busiest = Imbalance(busiest, all, len(a.time))
	return e
}

// sampler returns a function that draws the different experts of each row.
func (r Routing) sampler(random *rand.Rand) func(ids []int32) {
	sums, sum := make([]float64, r.Experts), 0.0 // of the probabilities up to each
	for n := range sums {
		sum += math.Pow(float64(n+1), -r.Skew)
		sums[n] = sum
	}
	return func(ids []int32) {
		order := random.Perm(r.Experts) // of popularity, in this layer
		taken := make([]int, r.Experts) // by which row, plus 1
		for slot := range ids {
			row := slot/r.Used + 1
			for {
				e := order[sort.SearchFloat64s(sums, random.Float64()*sum)]
				if taken[e] != row {
					taken[e] = row
					ids[slot] = int32(e)
					break
				}
			}
		}
	}
}
