package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/internal/testenv"
)

// cablesOf is the Cables of n ranks with rails for each pair, and more for some.
func cablesOf(n int, more map[[2]int]int, rails int) [][]int {
	all := make([][]int, n)
	for a := range all {
		all[a] = make([]int, n)
		for b := range all[a] {
			if a != b {
				all[a][b] = max(rails, more[[2]int{min(a, b), max(a, b)}])
			}
		}
	}
	return all
}

// uneven are topologies of n ranks with at least rails for each pair: a mesh and
// rings, with random numbers of further cables.
func uneven(n, rails int, rng *rand.Rand) []Topology {
	all := topologies(n, rails)
	for i := range all {
		more := map[[2]int]int{}
		for a := range n {
			for b := a + 1; b < n; b++ {
				more[[2]int{a, b}] = rails + rng.IntN(3)
			}
		}
		all[i].Cables = cablesOf(n, more, rails)
	}
	return all
}

// TestUnevenCables: where pairs have different numbers of cables, every operation
// gives the reference, no program uses a cable that does not exist, and a message
// uses all cables of its pair.
func TestUnevenCables(t *testing.T) {
	rng := rand.New(rand.NewPCG(40, 2))
	seed, most := uint64(0), 4
	if testenv.Rest(t, testenv.Full, "five and six ranks") {
		most = 6
	}
	for n := 3; n <= most; n++ {
		for rails := 1; rails <= 2; rails++ {
			for _, topo := range uneven(n, rails, rng) {
				cfg := Config{Topology: topo, OneRail: -1}
				if rng.IntN(2) == 0 {
					cfg = inside(cfg)
				}
				sizes := make([]int64, n)
				for r := range sizes {
					sizes[r] = int64(rng.IntN(9000)) * 2
				}
				long := 2 * int64(20000+rng.IntN(5000))
				last := topo.path(0, n-1, 0)[0]
				requests := []Request{{Op: Gather, Sizes: sizes, Root: n - 1}, {Op: ReduceScatter, Sizes: sizes, DType: distributed.BFloat16},
					{Op: ReduceScatter, Bytes: long, DType: distributed.Int16}, {Op: AllGather, Bytes: long}, {Op: AllGatherV, Sizes: sizes},
					{Op: Broadcast, Bytes: long, Root: n / 2}, {Op: Send, Bytes: long, From: last}, {Op: Send, Bytes: long, To: last}, {Op: Barrier}}
				for _, dt := range []distributed.DType{distributed.Float16, distributed.Float32} {
					req := Request{Op: AllSum, DType: dt, Bytes: long &^ 3}
					for _, way := range ways(t, cfg, req) {
						req.Force = way
						requests = append(requests, req)
					}
				}
				for _, req := range requests {
					seed++
					p := check(t, cfg, req, seed%2 == 0, seed)
					exist(t, p)
					if req.Op == Send {
						require.Len(t, p.Programs, topo.Cables[req.From][req.To], "%v", p)
						for _, prog := range p.Programs {
							require.Positive(t, prog.wires()[req.From][req.To], "every cable of the pair carries a part: %v", p)
						}
					}
				}
			}
		}
	}
	t.Logf("%d operations", seed)
}

// exist requires that a plan uses only cables that its pairs have.
func exist(t *testing.T, p *Plan) {
	t.Helper()
	for _, prog := range p.Programs {
		for i := range prog.Ops {
			if o := &prog.Ops[i]; o.Kind == Move && prog.Chunks(i) > 0 {
				require.Less(t, prog.Rail, p.Config.Topology.cables(o.From, o.To), "rank %d to %d: %v", o.From, o.To, p)
			}
		}
	}
}

// TestBlocksOfUnevenPairs: a block uses as many rails as each pair has that it
// crosses.
func TestBlocksOfUnevenPairs(t *testing.T) {
	star := map[[2]int]int{{0, 1}: 2, {0, 2}: 2, {0, 3}: 2}
	line := map[[2]int]int{{0, 1}: 3, {1, 2}: 2, {2, 3}: 2}
	mesh := func(more map[[2]int]int) Topology { return Topology{N: 4, Rails: 1, Cables: cablesOf(4, more, 1)} }
	ring := func(more map[[2]int]int) Topology {
		x := Ring(4, 1)
		x.Cables = cablesOf(4, more, 1)
		return x
	}
	const long = 1 << 20
	sum := func(way Algorithm) Request {
		return Request{Op: AllSum, DType: distributed.Float32, Bytes: long, Force: way}
	}
	sizes := []int64{long, long, long, long}
	for _, c := range []struct {
		name string
		topo Topology
		req  Request
		want []int
	}{
		{"all pairs", mesh(star), sum(OneShot), []int{1, 1, 1, 1}},
		{"slices", mesh(star), sum(TwoShot), []int{2, 1, 1, 1}},
		{"parts", mesh(star), Request{Op: AllGather, Bytes: long}, []int{2, 1, 1, 1}},
		{"parts to the root", mesh(star), Request{Op: Gather, Sizes: sizes}, []int{1, 2, 2, 2}},
		{"parts to another root", mesh(star), Request{Op: Gather, Sizes: sizes, Root: 3}, []int{2, 1, 1, 1}},
		{"the root's", mesh(star), Request{Op: Broadcast, Bytes: long}, []int{2, 2, 2, 2}},
		{"another root's", mesh(star), Request{Op: Broadcast, Bytes: long, Root: 1}, []int{1, 1, 1, 1}},
		{"a chain", mesh(line), sum(Chain), []int{2, 2, 2, 2}},
		{"a chain on a ring", ring(line), sum(Chain), []int{2, 2, 2, 2}},
		{"slices on a ring", ring(line), sum(TwoShot), []int{1, 1, 1, 1}},
		{"a message", mesh(line), Request{Op: Send, Bytes: long, To: 1}, []int{3, 3, 3, 3}},
		{"a message on a ring", ring(line), Request{Op: Send, Bytes: long, From: 2, To: 1}, []int{2, 2, 2, 2}},
		{"a short message", mesh(line), Request{Op: Send, Bytes: 32 << 10, To: 1}, []int{1, 1, 1, 1}},
		{"a barrier", mesh(star), Request{Op: Barrier}, []int{1, 1, 1, 1}},
	} {
		p, err := New(Config{Topology: c.topo, Cap: 7}, c.req)
		require.NoError(t, err)
		require.Equal(t, c.want, p.blocks(), c.name)
		exist(t, p)
	}
}

// TestFurtherCablesNeverCostMore: with more cables between some ranks no operation
// is estimated to take longer.
func TestFurtherCablesNeverCostMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(40, 3))
	better := 0
	for n := 3; n <= 5; n++ {
		for _, topo := range uneven(n, 1, rng) {
			even := topo
			even.Cables = nil
			for _, req := range []Request{{Op: AllSum, DType: distributed.Float32, Bytes: 4 << 20}, {Op: AllGather, Bytes: 1 << 20},
				{Op: Send, Bytes: 4 << 20, From: topo.path(0, n-1, 0)[0]}} {
				a, err := New(Config{Topology: even, Cap: 7, Model: measured}, req)
				require.NoError(t, err)
				b, err := New(Config{Topology: topo, Cap: 7, Model: measured}, req)
				require.NoError(t, err)
				require.LessOrEqual(t, b.Cost, a.Cost*101/100, "%v, cables %v", b, topo.Cables) // pieces are rounded to messages
				if b.Cost < a.Cost*3/4 {
					better++
				}
			}
		}
	}
	require.Positive(t, better)
}

// TestChainIsNoCheaperThanItsCopies: a chain of many rounds costs at least what every
// inner rank copies and reduces: four times the vector, partial sums in float32.
func TestChainIsNoCheaperThanItsCopies(t *testing.T) {
	const vector = 8 << 20
	for rails := 1; rails <= 4; rails++ {
		p, err := New(Config{Topology: Ring(8, rails), Cap: 3}, Request{Op: AllSum, DType: distributed.Float16, Bytes: vector, Force: Chain})
		require.NoError(t, err)
		require.GreaterOrEqual(t, p.Cost, int64(6*vector)*1e9/DefaultModel().Memory*99/100, "%v", p) // each chunk is rounded down
	}
}

// TestOneCoreForAllRails: more rails do not make the copying and reducing of a rank
// faster, so the estimate has a floor.
func TestOneCoreForAllRails(t *testing.T) {
	slow := Model{Latency: 6000, Rate: 8e9, Memory: 1e9}
	one := func(rails int) float64 {
		p, err := New(Config{Topology: Mesh(4, rails), Cap: 7, Model: slow}, Request{Op: AllSum, DType: distributed.Float32, Bytes: 16 << 20, Force: TwoShot})
		require.NoError(t, err)
		return float64(p.Cost)
	}
	require.InEpsilon(t, one(1), one(4), 0.02)
}
