package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// measured is the model of the specification's table (11.2), in which copying
// and reducing cost nothing.
var measured = Model{Latency: 6000, Rate: 8e9, Memory: 1e15}

func cost(t *testing.T, cfg Config, way Algorithm, dt distributed.DType, bytes int64) float64 {
	t.Helper()
	p, err := New(cfg, Request{Op: AllSum, DType: dt, Bytes: bytes, Force: way})
	require.NoError(t, err)
	return float64(p.Cost) / 1000
}

// TestEstimateOfTheMesh compares with the formulas of 11.2: a + S/B in one
// phase, about 2a + 2S/(N*B) in two. Full messages of the last class make it a
// little more; that phase two begins with the first piece, a little less.
func TestEstimateOfTheMesh(t *testing.T) {
	for _, n := range []int{2, 4, 8} {
		cfg := Config{Topology: Mesh(n, 1), Cap: 7, Model: measured}
		for _, s := range []int64{8 << 10, 16 << 10, 28 << 10, 128 << 10, 4 << 20, 28 << 20} {
			one := 6 + float64(s)/8000
			require.InEpsilon(t, one, cost(t, cfg, OneShot, distributed.Int32, s), 0.02, "one phase, %d ranks, %d bytes", n, s)
			two := 12 + 2*float64(s)/float64(n)/8000
			got := cost(t, cfg, TwoShot, distributed.Int32, s)
			require.GreaterOrEqual(t, got, 12+float64(s)/float64(n)/8000)
			require.Less(t, got, 1.6*two+10, "two phases, %d ranks, %d bytes", n, s)
		}
	}
}

// TestEstimateOfTheChain: every direction of every cable carries the vector
// once, so a long vector costs S/(W*B), twice that in float32 for halves.
func TestEstimateOfTheChain(t *testing.T) {
	const s = 256 << 20
	for _, n := range []int{4, 8} {
		for rails := 1; rails <= 3; rails++ {
			cfg := Config{Topology: Ring(n, rails), Cap: 7, Model: measured}
			want := s / 8000 / float64(rails)
			require.InEpsilon(t, want, cost(t, cfg, Chain, distributed.Float32, s), 0.08)
			require.InEpsilon(t, 2*want, cost(t, cfg, Chain, distributed.Float16, s), 0.08)
		}
	}
}

// TestChoice: one phase for the messages of a decode step, two or a chain for
// those of a prefill, and more rails cost less.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		topo  Topology
		dt    distributed.DType
		bytes int64
		want  Algorithm
	}{
		{Mesh(2, 1), distributed.Float16, 14336, OneShot},
		{Mesh(4, 1), distributed.Float16, 14336, OneShot},
		{Ring(4, 2), distributed.Float16, 14336, OneShot},
		{Mesh(4, 1), distributed.Float16, 7340032, TwoShot},
		{Ring(4, 2), distributed.Float16, 7340032, TwoShot},
		{Ring(8, 2), distributed.Float32, 256 << 20, Chain},
	} {
		p, err := New(Config{Topology: c.topo, Cap: 7}, Request{Op: AllSum, DType: c.dt, Bytes: c.bytes})
		require.NoError(t, err)
		require.Equal(t, c.want, p.Algorithm, "%v", p)
	}
	last := 1e18
	for rails := 1; rails <= 4; rails++ {
		now := cost(t, Config{Topology: Ring(4, rails), Cap: 7, Model: measured}, Auto, distributed.Float16, 28<<20)
		require.Less(t, now, last)
		last = now
	}
}

func TestTableAndPlanner(t *testing.T) {
	cfg := Config{Topology: Ring(4, 2), Cap: 7}
	steps, err := tabulate(cfg, Request{Op: AllSum, DType: distributed.Float16}, 16<<20)
	require.NoError(t, err)
	require.Equal(t, OneShot, steps[0].Choice.Algorithm)
	require.Equal(t, 1, steps[0].Rails)
	require.NotEqual(t, OneShot, steps[len(steps)-1].Choice.Algorithm)
	require.Equal(t, 2, steps[len(steps)-1].Rails)

	p, err := NewPlanner(cfg)
	require.NoError(t, err)
	plan := func(n int64) *Plan {
		got, err := p.Plan(Request{Op: AllSum, DType: distributed.Float16, Bytes: n})
		require.NoError(t, err)
		return got
	}
	// A planner remembers the same choice that New makes.
	for _, n := range []int64{4096, 4098, 4500, 5000, 1 << 20, 1<<20 + 2, 1<<20 + 4} {
		fresh, err := New(cfg, Request{Op: AllSum, DType: distributed.Float16, Bytes: n})
		require.NoError(t, err)
		require.Equal(t, fresh, plan(n))
	}
	sizes := []int64{5000, 4999, 0, 100}
	fresh, err := New(cfg, Request{Op: AllGatherV, Sizes: sizes})
	require.NoError(t, err)
	kept, err := p.Plan(Request{Op: AllGatherV, Sizes: sizes})
	require.NoError(t, err)
	require.Equal(t, fresh, kept)
	require.Less(t, len(p.choices), 12)
	_, err = p.Plan(Request{Op: AllGather, Bytes: -1})
	require.ErrorIs(t, err, distributed.ErrArgument)
}

func TestDigest(t *testing.T) {
	base := Config{Topology: Ring(4, 2), Cap: 7}
	digest := func(c Config) uint64 {
		d, err := c.Digest()
		require.NoError(t, err)
		return d
	}
	explicit := base
	explicit.Slots, explicit.OneRail, explicit.Model = DefaultSlots, DefaultOneRail, DefaultModel()
	require.Equal(t, digest(base), digest(explicit), "defaults are what they stand for")
	seen := map[uint64]bool{digest(base): true}
	for _, change := range []func(c *Config){
		func(c *Config) { c.Cap = 6 }, func(c *Config) { c.Slots = 3 }, func(c *Config) { c.OneRail = 1 },
		func(c *Config) { c.Topology.Rails = 1 }, func(c *Config) { c.Topology = Mesh(4, 2) },
		func(c *Config) { c.Topology.Ring = []int{0, 2, 1, 3} }, func(c *Config) { c.Topology.Cables = cablesOf(4, map[[2]int]int{{0, 1}: 3}, 2) },
		func(c *Config) { c.Topology.Cables = cablesOf(4, map[[2]int]int{{1, 2}: 3}, 2) },
		func(c *Config) { c.Tag = 8 },
		func(c *Config) { c.Model = Model{Latency: 5999, Rate: 8e9, Memory: 20e9} },
	} {
		c := base
		change(&c)
		require.False(t, seen[digest(c)], "%+v", c)
		seen[digest(c)] = true
	}
}

// TestSendRecv: a circle of ranks that all send and receive at once, with
// different lengths, terminates.
func TestSendRecv(t *testing.T) {
	cfg, err := Config{Topology: Ring(5, 2), Cap: 2, OneRail: 20000}.fill()
	require.NoError(t, err)
	planner, err := NewPlanner(cfg)
	require.NoError(t, err)
	n := cfg.Topology.N
	sizes := []int64{100001, 70000, 8192, 0, 19999} // of what each rank sends to the next
	src, dst := make([][]byte, n), make([][]byte, n)
	rails := make([][]*Local, 2)
	for w := range rails {
		rails[w] = make([]*Local, n)
		for r := range n {
			rails[w][r] = &Local{Rank: r, Rail: w, Elem: 1}
		}
	}
	for r := range n {
		src[r] = make([]byte, sizes[r])
		for i := range src[r] {
			src[r][i] = byte(i*7 + r + i>>8)
		}
		prev := (r + n - 1) % n
		dst[r] = make([]byte, sizes[prev])
		locals, err := planner.SendRecv(r, (r+1)%n, sizes[r], prev, sizes[prev])
		require.NoError(t, err)
		for w, l := range locals {
			rails[w][r] = l
		}
	}
	for w, locals := range rails {
		simulateRail(t, &Plan{Config: cfg, Choice: Choice{Class: 2}, Elem: 1}, locals, src, dst, uint64(w))
	}
	for r := range n {
		require.Equal(t, src[r], dst[(r+1)%n], "rank %d", r)
	}
	_, err = planner.SendRecv(0, 2, 10, 1, 10)
	require.ErrorIs(t, err, ErrNoWire)
	_, err = planner.SendRecv(0, 1, 10, 3, 10)
	require.ErrorIs(t, err, ErrNoWire)
}
