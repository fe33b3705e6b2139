package grouptest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// Splits tests a transport against the contract of Split: which rank is in
// which child and in which order, that children perform all operations
// alongside their parent and each other, and which groups fail together.
func Splits(t *testing.T, connect Connect) {
	for _, c := range splitCases {
		t.Run(c.name, func(t *testing.T) {
			groups := connect(t, Setup{Size: len(c.colors), OpTimeout: time.Minute})
			children := splitAll(t, groups, c.colors, c.keys)
			require.Equal(t, c.want, membersOf(t, groups, children))
			exercise(t, children, 1)
			exercise(t, groups, 2)
		})
	}
	for n := 1; n <= 8; n++ {
		t.Run(fmt.Sprintf("random, ranks=%d", n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(n), 3))
			groups := connect(t, Setup{Size: n, OpTimeout: time.Minute})
			nested(t, r, groups, 3)
			exercise(t, groups, 99)
		})
	}
	t.Run("interleaved", func(t *testing.T) { interleaved(t, connect(t, Setup{Size: 5, OpTimeout: time.Minute})) })
	t.Run("large", func(t *testing.T) {
		groups := connect(t, Setup{Size: 4, OpTimeout: time.Minute})
		largeChildren(t, splitAll(t, groups, []int{0, 1, 0, 1}, []int{1, 0, 0, 0}))
	})
	splitFailures(t, connect)
}

// OnChildren returns a Connect that makes children of a split instead of
// connected groups. The last rank of the parent is in no child.
func OnChildren(connect Connect) Connect {
	return func(t *testing.T, s Setup) []Group {
		n := s.Size
		s.Size++
		colors, keys := make([]int, s.Size), make([]int, s.Size)
		colors[n] = distributed.Undefined
		return splitAll(t, connect(t, s), colors, keys)[:n]
	}
}

const none = distributed.Undefined

// splitCases are splits with obvious results. want holds for each rank the
// members of its child, as ranks of the parent; nil for no child.
var splitCases = []struct {
	name         string
	colors, keys []int
	want         [][]int
}{
	{"all together", []int{0, 0, 0}, []int{0, 0, 0}, [][]int{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}},
	{"reversed", []int{5, 5, 5}, []int{2, 1, 0}, [][]int{{2, 1, 0}, {2, 1, 0}, {2, 1, 0}}},
	{"even and odd", []int{0, 1, 0, 1, 0}, []int{0, 0, 0, 0, 0}, [][]int{{0, 2, 4}, {1, 3}, {0, 2, 4}, {1, 3}, {0, 2, 4}}},
	{"ties by rank", []int{7, 7, 7, 7}, []int{3, 1, 3, 1}, [][]int{{1, 3, 0, 2}, {1, 3, 0, 2}, {1, 3, 0, 2}, {1, 3, 0, 2}}},
	{"keys below 0 are the rank", []int{0, 0, 0}, []int{2, -1, -7}, [][]int{{1, 0, 2}, {1, 0, 2}, {1, 0, 2}}},
	{"some stay out", []int{none, 0, none, 0}, []int{0, 1, 0, 0}, [][]int{nil, {3, 1}, nil, {3, 1}}},
	{"all stay out", []int{none, none}, []int{0, 0}, [][]int{nil, nil}},
	{"each alone", []int{2, 1, 0}, []int{0, 0, 0}, [][]int{{0}, {1}, {2}}},
	{"wide colors and keys", []int{math.MaxInt32, 0, math.MaxInt32}, []int{math.MaxInt32, 0, 1 << 30}, [][]int{{2, 0}, {1}, {2, 0}}},
	{"one rank", []int{3}, []int{9}, [][]int{{0}}},
	{"one rank stays out", []int{none}, []int{0}, [][]int{nil}},
}

// splitAll splits on all ranks at once; the result is nil for a rank that has
// no child or no group.
func splitAll(t *testing.T, groups []Group, colors, keys []int) []Group {
	t.Helper()
	children := make([]Group, len(groups))
	for i, err := range OnAll(groups, func(i int, g Group) (err error) {
		children[i], err = g.Split(t.Context(), colors[i], keys[i])
		return err
	}) {
		require.NoError(t, err, "rank %d", i)
	}
	return children
}

// membersOf asks the children for their members: each rank contributes its
// index in the list of parents.
func membersOf(t *testing.T, parents, children []Group) [][]int {
	t.Helper()
	out := make([][]int, len(parents))
	for i, err := range OnAll(children, func(i int, g Group) error {
		all := make([]byte, g.Size())
		if err := g.AllGather(t.Context(), all, []byte{byte(i)}); err != nil {
			return err
		}
		for _, b := range all {
			out[i] = append(out[i], int(b))
		}
		if out[i][g.Rank()] != i {
			return fmt.Errorf("rank %d is not in its place in %v", g.Rank(), out[i])
		}
		return nil
	}) {
		require.NoError(t, err, "rank %d", i)
	}
	return out
}

// wanted computes the result of a split from the definition: a member's rank is
// the number of members before it.
func wanted(colors, keys []int) [][]int {
	key := func(rank int) int {
		if keys[rank] < 0 {
			return rank
		}
		return keys[rank]
	}
	out := make([][]int, len(colors))
	for r, c := range colors {
		if c == none {
			continue
		}
		for m := range colors {
			if colors[m] == c {
				out[r] = append(out[r], m)
			}
		}
		slices.SortStableFunc(out[r], func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	}
	return out
}

// randomSplit returns random colors and keys.
func randomSplit(r *rand.Rand, n int) (colors, keys []int) {
	kinds := 1 + r.IntN(3)
	for range n {
		c := r.IntN(kinds)
		if r.IntN(6) == 0 {
			c = none
		}
		colors, keys = append(colors, c), append(keys, r.IntN(n+2)-2)
	}
	return colors, keys
}

// nested splits groups at random, several times, and the children of each
// recursively, down to depth.
func nested(t *testing.T, r *rand.Rand, groups []Group, depth int) {
	if depth == 0 {
		return
	}
	for range 2 {
		colors, keys := randomSplit(r, len(groups))
		children := splitAll(t, groups, colors, keys)
		require.Equal(t, wantedIn(t, groups, colors, keys), membersOf(t, groups, children))
		exercise(t, children, depth)
		nested(t, r, children, depth-1)
		exercise(t, groups, -depth)
		for _, c := range children {
			if c != nil && r.IntN(2) == 0 {
				require.NoError(t, c.Close()) // the others stay open
			}
		}
	}
}

// wantedIn is wanted for a list with the ranks of several groups. Each group is
// split by itself.
func wantedIn(t *testing.T, groups []Group, colors, keys []int) [][]int {
	t.Helper()
	out := make([][]int, len(groups))
	for i, members := range membersOf(t, groups, groups) {
		if groups[i] == nil {
			continue
		}
		cs, ks := make([]int, len(members)), make([]int, len(members))
		for at, m := range members {
			cs[at], ks[at] = colors[m], keys[m]
		}
		for _, at := range wanted(cs, ks)[groups[i].Rank()] {
			out[i] = append(out[i], members[at])
		}
	}
	return out
}

// exercise compares every operation on all groups of a list with the reference,
// in all groups at the same time.
func exercise(t *testing.T, groups []Group, seed int) {
	t.Helper()
	for i, err := range OnAll(groups, func(_ int, g Group) error { return everything(t.Context(), g, seed) }) {
		require.NoError(t, err, "place %d", i)
	}
}

// everything runs each operation once.
func everything(ctx context.Context, g Group, seed int) error {
	n, r := g.Size(), g.Rank()
	for _, size := range []int{8, Chunk + 8*n} {
		in := blocks(n, size, seed, n)
		dst := make([]byte, size)
		for _, k := range []kind{sum, maximum, minimum} {
			err := reducers[k](g)(ctx, dst, in[r], distributed.Float16)
			if err = compared(err, reduced(k, distributed.Float16, in), dst, "%v of %d bytes", k, size); err != nil {
				return err
			}
		}
		want := reduced(sum, distributed.BFloat16, in)
		p := g.StartAllSum(ctx, dst, in[r], distributed.BFloat16)
		if err := compared(p.Wait(), want, dst, "started sum of %d bytes", size); err != nil {
			return err
		}
		wide := blocks(n, n*size, seed, n, 1)
		err := g.ReduceScatter(ctx, dst, wide[r], nil, distributed.Int32)
		if err = compared(err, reduced(sum, distributed.Int32, wide)[r*size:(r+1)*size], dst, "reduce_scatter"); err != nil {
			return err
		}
		whole := slices.Concat(in...)
		all := make([]byte, len(whole))
		if err := compared(g.AllGather(ctx, all, in[r]), whole, all, "all_gather"); err != nil {
			return err
		}
		for root := range n {
			buf := append([]byte(nil), in[r]...)
			if err := compared(g.Broadcast(ctx, buf, root), in[root], buf, "broadcast from %d", root); err != nil {
				return err
			}
		}
		if err := gatherV(ctx, g, size); err != nil {
			return err
		}
		if err := gatherTo(ctx, g, size, n-1); err != nil {
			return err
		}
		if err := scatterV(ctx, g, size); err != nil {
			return err
		}
		if err := g.Barrier(ctx); err != nil {
			return err
		}
		if n > 1 {
			if err := pass(ctx, g, in); err != nil {
				return err
			}
		}
	}
	return nil
}

// interleaved uses a parent, the children of two different splits of it, and
// grandchildren, one after the other in a random order that all ranks share.
func interleaved(t *testing.T, groups []Group) {
	halves := splitAll(t, groups, []int{0, 0, 1, 1, 0}, []int{0, 0, 0, 0, 0})
	across := splitAll(t, groups, []int{4, 9, 9, 4, none}, []int{3, 2, 1, 0, 0})
	deeper := splitAll(t, halves, []int{1, 1, 0, 0, 0}, []int{1, 0, 1, 0, 0})
	families := [][]Group{groups, halves, across, deeper}
	for i, err := range OnAll(groups, func(i int, _ Group) error {
		r := rand.New(rand.NewPCG(1, 7)) // the same on all ranks
		for step := range 200 {
			g := families[r.IntN(len(families))][i]
			size := 2 * r.IntN(3*Chunk)
			if g == nil {
				continue
			}
			in := blocks(g.Size(), size, step)
			dst := make([]byte, size)
			if err := g.StartAllSum(t.Context(), dst, in[g.Rank()], distributed.Float16).Wait(); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if err := same(reduced(sum, distributed.Float16, in), dst, "step %d", step); err != nil {
				return err
			}
		}
		return nil
	}) {
		require.NoError(t, err, "rank %d", i)
	}
}

// largeChildren moves more data than any kernel buffer holds, in two children
// at once.
func largeChildren(t *testing.T, children []Group) {
	const size = 5<<20 + 6
	in := blocks(2, size, 4)
	want := reduced(sum, distributed.Float16, in)
	for i, err := range OnAll(children, func(_ int, g Group) error {
		buf := append([]byte(nil), in[g.Rank()]...)
		if err := compared(g.StartAllSum(t.Context(), buf, buf, distributed.Float16).Wait(), want, buf, "all_sum"); err != nil {
			return err
		}
		return pass(t.Context(), g, in)
	}) {
		require.NoError(t, err, "rank %d", i)
	}
}
