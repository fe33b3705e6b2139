//go:build cgo && (linux || darwin)

package rdma

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/plan"
)

// TestUnevenCables: ranks of which some pairs have several cables form a mesh, not a
// ring, and a message between two ranks uses all of theirs. So do sub-groups. An
// extra cable that carries nothing is left out.
func TestUnevenCables(t *testing.T) {
	w := cabled(4, func(a, b int) int { return max(1, map[[2]int]int{{0, 1}: 2, {2, 3}: 3}[[2]int{a, b}]) }, "", "")
	const long = 300_000
	x := group(t, w, 4, nil)
	require.Contains(t, x.groups[0].Describe().Topology, "rdma mesh of 4 ranks, rails 1 to 3, UC")
	x.all(t, func(g *distributed.Group) error { return firstSums(t.Context(), g) })
	carried := func(groups []*distributed.Group, peers []int, from, to, cables int) {
		t.Helper()
		before := x.sentOver(w)
		succeed(t, onAll(groups, func(i int, g *distributed.Group) error { return swapped(t.Context(), g, peers[i], long) }))
		for k := range cables {
			d := device(from, to, k)
			require.Greater(t, x.fabric.Count("bytes:"+d)-before[d], long/cables-4096, "%s carries its part", d)
		}
	}
	carried(x.groups, []int{1, 0, 3, 2}, 0, 1, 2)
	carried(x.groups, []int{1, 0, 3, 2}, 2, 3, 3)
	carried(x.groups, []int{3, 2, 1, 0}, 0, 3, 1)
	children := splits(t, x.groups, []int{0, 0, 1, 1}, []int{0, 0, 0, 0})
	require.Contains(t, children[0].Describe().Topology, "rails 2, UC")
	require.Contains(t, children[2].Describe().Topology, "rails 3, UC")
	works(t, children)
	works(t, splits(t, x.groups, []int{0, 0, none, 0}, []int{2, 1, 0, 0})) // ranks in another order
	works(t, x.groups)

	w.script += "cable " + device(2, 3, 1) + " " + device(3, 2, 1) + " dead\n"
	x = group(t, w, 4, func(_ int, o *rdma.Options, _ *distributed.Link) {
		o.Tuning.OneRail, o.Tuning.TokenTimeout = -1, 200*time.Millisecond
	})
	require.Contains(t, x.groups[0].Describe().Topology, "rdma mesh of 4 ranks, rails 1 to 2, UC")
	require.Equal(t, []string{device(2, 3, 0), device(2, 3, 2)}, cables(x.groups[1])[2][3])
	works(t, x.groups)
	carried(x.groups, []int{1, 0, 3, 2}, 0, 1, 2)
}

// swapped exchanges n bytes with another rank.
func swapped(ctx context.Context, g *distributed.Group, peer, n int) error {
	dst := make([]byte, n)
	if err := g.SendRecv(ctx, dst, peer, pattern(n, g.Rank()), peer); err != nil {
		return err
	}
	return sentBy(peer, dst)
}

// TestUnevenRing: on a ring too a message uses all cables of its pair, and sums use
// as many rails as all neighbours have.
func TestUnevenRing(t *testing.T) {
	w := cabled(4, func(a, b int) int { return map[[2]int]int{{0, 1}: 3, {1, 2}: 1, {2, 3}: 2, {0, 3}: 1}[[2]int{a, b}] }, "poison=1", "")
	x := group(t, w, 4, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.OneRail = -1 })
	require.Contains(t, x.groups[0].Describe().Topology, "rdma ring [0 1 2 3] of 4 ranks, rails 1 to 3, UC")
	x.all(t, func(g *distributed.Group) error { return firstSums(t.Context(), g) })
	works(t, x.groups)
	require.Positive(t, x.fabric.Count("bytes:"+device(0, 1, 2)))
}

// TestMeasuredOverOneRail: the rate of a rail is measured over one cable of a pair that
// has several.
func TestMeasuredOverOneRail(t *testing.T) {
	w := cabled(3, func(a, b int) int { return 1 + a + b }, "", "")
	x := group(t, w, 3, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Model = plan.Model{} })
	first := x.fabric.Count("bytes:" + device(0, 1, 0))
	require.Greater(t, first, 4<<20)
	require.Less(t, x.fabric.Count("bytes:"+device(0, 1, 1)), first/2)
}
