package assign

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// setOf returns the set of some experts.
func setOf(experts ...int) (s Set) {
	for _, e := range experts {
		s.Add(e)
	}
	return s
}

// group is ranks that own equal ranges. A rank has a copy of each other expert with a
// probability.
func group(r *rand.Rand, experts, ranks int, copied float64) []Rank {
	out := make([]Rank, ranks)
	for i := range out {
		out[i] = Rank{Own: [2]int{experts * i / ranks, experts * (i + 1) / ranks}, Speed: 1}
		var s Set
		for e := range experts {
			if r.Float64() < copied {
				s.Add(e)
			}
		}
		out[i].Copies = []Set{s}
	}
	return out
}

// choose is the ids of rows that choose different experts each.
func choose(r *rand.Rand, experts, rows, used int) []int32 {
	var ids []int32
	for range rows {
		for _, e := range r.Perm(experts)[:used] {
			ids = append(ids, int32(e))
		}
	}
	return ids
}

// times are what the ranks take, computed apart from the Assigner.
func times(ranks []Rank, to []uint8, ids []int32) []float64 {
	fastest := slices.MaxFunc(ranks, func(a, b Rank) int { return a.Speed - b.Speed }).Speed
	out := make([]float64, len(ranks))
	seen := map[[2]int]bool{}
	for slot, r := range to[:len(ids)] {
		work := 1.0
		if k := [2]int{int(r), int(ids[slot])}; !seen[k] {
			seen[k] = true
			work += ReadRows
		}
		out[r] += work * float64(fastest) / float64(max(ranks[r].Speed, 1))
	}
	return out
}

// has reports whether a rank has an expert in a layer.
func has(x Rank, layer int, e int32) bool {
	return int(e) >= x.Own[0] && int(e) < x.Own[1] || CopiesOf(x.Copies, layer).Has(int(e))
}

// optimum is the least time of the slowest rank over all assignments of whole experts.
func optimum(ranks []Rank, layer int, ids []int32) float64 {
	fastest := slices.MaxFunc(ranks, func(a, b Rank) int { return a.Speed - b.Speed }).Speed
	rows := map[int32]int{}
	for _, e := range ids {
		rows[e]++
	}
	var chosen []int32
	for e := range rows {
		chosen = append(chosen, e)
	}
	slices.SortFunc(chosen, func(a, b int32) int { return rows[b] - rows[a] })
	busy, best := make([]float64, len(ranks)), math.Inf(1)
	var place func(i int)
	place = func(i int) {
		if now := slices.Max(busy); now >= best {
			return
		} else if i == len(chosen) {
			best = now
			return
		}
		for r, x := range ranks {
			if !has(x, layer, chosen[i]) {
				continue
			}
			took := float64(ReadRows+rows[chosen[i]]) * float64(fastest) / float64(max(x.Speed, 1))
			busy[r] += took
			place(i + 1)
			busy[r] -= took
		}
	}
	place(0)
	return best
}

// TestOptimum compares small steps with the best assignment of whole experts: rows of one
// token have exactly that, whatever is copied; more rows are within 4/3 of it where every
// rank has all experts, and within 3/2 with some copies or unequal ranks.
func TestOptimum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name   string
		copied float64
		rows   int
		speeds bool
		within float64
	}{
		{"one row, all copied", 1, 1, false, 1},
		{"one row, some copied", 0.3, 1, false, 1},
		{"one row, unequal ranks", 1, 1, true, 1},
		{"three rows, all copied", 1, 3, false, 4. / 3},
		{"three rows, some copied", 0.4, 3, false, 1.5},
		{"three rows, unequal ranks", 1, 3, true, 1.5},
		{"nothing copied", 0, 3, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			worst, sum, n := 0.0, 0.0, 0
			for range 150 {
				ranks, experts := 2+r.IntN(3), 4+r.IntN(8)
				all := group(r, experts, ranks, c.copied)
				for i := range all {
					if c.speeds {
						all[i].Speed = 1 << r.IntN(3)
					}
				}
				ids, to := choose(r, experts, c.rows, min(3, experts)), make([]uint8, 64)
				a := New(experts, all)
				a.Step(to, 0, ids)
				got, best := slices.Max(times(all, to, ids)), optimum(all, 0, ids)
				worst, sum, n = max(worst, got/best), sum+got/best, n+1
				if c.rows == 1 {
					a.Rows(to, 0, ids, len(ids))
					require.InDelta(t, best, slices.Max(times(all, to, ids)), 1e-9)
				}
			}
			t.Logf("at most %.3f of the optimum, %.4f on average", worst, sum/float64(n))
			require.LessOrEqual(t, worst, c.within+1e-9)
		})
	}
}

// TestTable: who computes what, by hand.
func TestTable(t *testing.T) {
	all := setOf(0, 1, 2, 3, 4, 5, 6, 7)
	two := func(copies ...Set) []Rank {
		return []Rank{{Own: [2]int{0, 4}, Copies: copies}, {Own: [2]int{4, 8}, Copies: copies}}
	}
	unequal := two(all)
	unequal[0].Speed, unequal[1].Speed = 2, 1
	layered := []Rank{{Own: [2]int{0, 4}}, {Own: [2]int{4, 8}, Copies: []Set{nil, setOf(0, 1)}}}
	through := []Rank{{Own: [2]int{0, 4}}, {Own: [2]int{4, 6}, Copies: []Set{setOf(0)}}, {Own: [2]int{6, 8}, Copies: []Set{setOf(4, 5)}}}
	for name, c := range map[string]struct {
		ranks []Rank
		layer int
		ids   []int32
		want  []Load
	}{
		"no copies":                    {two(), 0, []int32{0, 1, 2, 3, 4, 5}, []Load{{4, 4}, {2, 2}}},
		"all copied":                   {two(all), 0, []int32{0, 1, 2, 3, 4, 5}, []Load{{3, 3}, {3, 3}}},
		"a rank twice as fast":         {unequal, 0, []int32{0, 1, 2, 3, 4, 5}, []Load{{4, 4}, {2, 2}}},
		"a layer without copies":       {layered, 0, []int32{0, 1, 2, 3}, []Load{{4, 4}, {0, 0}}},
		"a layer with copies":          {layered, 1, []int32{0, 1, 2, 3}, []Load{{2, 2}, {2, 2}}},
		"rows of an expert together":   {two(all), 0, []int32{0, 0, 0, 1, 1, 1}, []Load{{3, 1}, {3, 1}}},
		"few rows are not divided":     {two(all), 0, []int32{0, 0, 0}, []Load{{3, 1}, {0, 0}}},
		"many rows of one are divided": {two(all), 0, slices.Repeat([]int32{5}, 100), []Load{{50, 1}, {50, 1}}},
		"by a chain over a third rank": {through, 0, []int32{0, 1, 4, 5}, []Load{{1, 1}, {2, 2}, {1, 1}}},
		"an id that is none":           {two(all), 0, []int32{-1, 3, 99, 4}, []Load{{1, 1}, {1, 1}}},
		"nothing":                      {two(all), 0, nil, []Load{{}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			to := make([]uint8, len(c.ids))
			got := New(8, c.ranks).Step(to, c.layer, c.ids)
			require.Equal(t, c.want, got)
			for slot, e := range c.ids {
				require.Equal(t, e < 0 || e > 7, to[slot] == None)
			}
		})
	}
}

// check runs a random case and requires what must hold of every assignment.
func check(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	ranks, experts, rows := 1+r.IntN(8), 1+r.IntN(64), r.IntN(40)
	used := 1 + r.IntN(min(8, experts))
	all := group(r, experts, ranks, r.Float64())
	for i := range all {
		all[i].Speed = r.IntN(MaxSpeed + 1)
		if r.IntN(3) == 0 {
			all[i].Copies = append(all[i].Copies, nil, all[(i+1)%ranks].Copies[0])
		}
	}
	layer := r.IntN(4)
	ids := choose(r, experts, rows, used)
	if r.IntN(4) == 0 { // the same token again and again
		for i := used; i < len(ids); i++ {
			ids[i] = ids[i-used]
		}
	}
	a, b := New(experts, all), New(experts, all)
	requireHeld := func(to []uint8, loads []Load) {
		slots := 0
		for slot, e := range ids {
			require.Less(t, int(to[slot]), ranks)
			require.True(t, has(all[to[slot]], layer, e), "rank %d does not have expert %d", to[slot], e)
		}
		for _, l := range loads {
			slots += l.Slots
			require.LessOrEqual(t, l.Experts, l.Slots)
		}
		require.Equal(t, len(ids), slots)
	}
	to, again := make([]uint8, len(ids)), make([]uint8, len(ids))
	loads := slices.Clone(a.Step(to, layer, ids))
	requireHeld(to, loads)
	b.Rows(again, 0, ids, used) // what was assigned before must not matter
	require.Equal(t, loads, b.Step(again, layer, ids))
	require.Equal(t, to, again, "equal on every rank")
	fixed := make([]uint8, len(ids))
	a.Fixed(fixed, ids)
	if rows > 0 {
		require.LessOrEqual(t, slices.Max(times(normal(all), to, ids)), slices.Max(times(normal(all), fixed, ids))*(1+1e-2), "no slower than its owners")
	}

	// Rows in another order: the same loads. Each row by itself: the same ranks.
	perm := r.Perm(rows)
	shuffled := make([]int32, 0, len(ids))
	for _, p := range perm {
		shuffled = append(shuffled, ids[p*used:(p+1)*used]...)
	}
	require.Equal(t, loads, a.Step(again, layer, shuffled))
	requireHeld(to, a.Rows(to, layer, ids, used))
	a.Rows(again, layer, shuffled, used)
	for i, p := range perm {
		require.Equal(t, to[p*used:(p+1)*used], again[i*used:(i+1)*used], "a row does not depend on the others")
	}
}

// normal replaces a speed of 0, which is 1.
func normal(all []Rank) []Rank {
	out := slices.Clone(all)
	for i := range out {
		out[i].Speed = max(out[i].Speed, 1)
	}
	return out
}

// TestRandom: every slot goes to one rank that has its expert, alike on all ranks, and
// not slower than without copies.
func TestRandom(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { check(t, seed) })
	}
}

func FuzzAssign(f *testing.F) {
	f.Add(uint64(1000))
	f.Fuzz(func(t *testing.T, seed uint64) { check(t, seed) })
}

// TestBalance: with all experts copied, ranks are busy alike.
func TestBalance(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		ranks, rows int
		most        float64
	}{{2, 1, 1}, {2, 4, 1.02}, {2, 512, 1.01}, {4, 512, 1.01}, {8, 512, 1.02}, {3, 1, 1}, {4, 1, 4. / 3}} {
		all := group(r, 256, c.ranks, 1)
		a := New(256, all)
		var busiest, total float64
		to := make([]uint8, 6*c.rows)
		for range 20 {
			ids := choose(r, 256, c.rows, 6)
			a.Step(to, 0, ids)
			x := times(all, to, ids)
			busiest += slices.Max(x)
			for _, t := range x {
				total += t
			}
		}
		require.LessOrEqual(t, float64(c.ranks)*busiest/total, c.most+1e-9, "%d ranks, %d rows", c.ranks, c.rows)
	}
}

func TestImbalance(t *testing.T) {
	require.InDelta(t, 1.5, Imbalance(3, 4, 2), 1e-9)
	require.InDelta(t, 1, Imbalance(0, 0, 2), 1e-9, "nothing was computed")
}

func TestSet(t *testing.T) {
	s := setOf(3, 64, 9)
	require.Equal(t, 3, s.Len())
	require.Equal(t, 65, s.End())
	require.Equal(t, 3, s.First())
	require.True(t, s.Has(9))
	require.False(t, s.Has(10))
	require.False(t, s.Has(1000))
	require.Zero(t, Set(nil).End())
	require.Equal(t, -1, Set{0, 0}.First())
	text, err := json.Marshal([]Set{s, nil, make(Set, 9)})
	require.NoError(t, err)
	require.JSONEq(t, `["080200000000000001","",""]`, string(text))
	var back []Set
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, s, back[0])
	require.Error(t, json.Unmarshal([]byte(`["0g"]`), &back))
}

// BenchmarkAssign is the time of a layer: of one token, and of chunks of a prompt.
func BenchmarkAssign(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, ranks := range []int{2, 8} {
		for _, rows := range []int{1, 8, 512} {
			a, ids, to := New(256, group(r, 256, ranks, 0.5)), choose(r, 256, rows, 6), make([]uint8, 6*rows)
			b.Run(fmt.Sprintf("step/ranks=%d/rows=%d", ranks, rows), func(b *testing.B) {
				for b.Loop() {
					a.Step(to, 0, ids)
				}
			})
			b.Run(fmt.Sprintf("rows/ranks=%d/rows=%d", ranks, rows), func(b *testing.B) {
				for b.Loop() {
					a.Rows(to, 0, ids, 6)
				}
			})
		}
	}
}
