package distributed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/distributed/memory"
)

func TestMembers(t *testing.T) {
	const none = distributed.Undefined
	for _, c := range []struct {
		name         string
		colors, keys []int
		want         []distributed.Part
	}{
		{"no ranks", nil, nil, []distributed.Part{}},
		{"none joins", []int{none, none}, []int{0, 0}, []distributed.Part{}},
		{"key orders", []int{1, 1, 1}, []int{9, 5, 7}, []distributed.Part{{1, []int{1, 2, 0}}}},
		{"ties by rank", []int{1, 1, 1}, []int{5, 5, 4}, []distributed.Part{{1, []int{2, 0, 1}}}},
		{"key below 0 is the rank", []int{0, 0, 0}, []int{1, -3, 1}, []distributed.Part{{0, []int{0, 1, 2}}}},
		{"colors apart", []int{8, 0, none, 8, 0}, []int{1, 0, 0, 0, 0}, []distributed.Part{{0, []int{1, 4}}, {8, []int{3, 0}}}},
	} {
		require.Equal(t, c.want, distributed.Members(c.colors, c.keys), c.name)
	}
}

// TestIDs: children of any depth, number and color have distinct ids, the same
// wherever they are computed, and distinct tokens.
func TestIDs(t *testing.T) {
	seen := map[uint64]bool{}
	id := func(group string, epoch uint32) uint64 {
		return distributed.GroupID(&distributed.Link{GroupID: group, Epoch: epoch})
	}
	parents := []uint64{id("a", 1), id("a", 2), id("b", 1)}
	for depth := range 3 {
		var next []uint64
		for _, p := range parents {
			require.False(t, seen[p], "depth %d", depth)
			seen[p] = true
			for n := uint64(1); n <= 4; n++ {
				for _, color := range []int{0, 1, 1 << 31} {
					next = append(next, distributed.ChildID(p, n, color))
				}
			}
		}
		parents = next
	}
	token := make([]byte, 32)
	require.Len(t, distributed.ChildToken(token, 7), 32)
	require.Equal(t, distributed.ChildToken(token, 7), distributed.ChildToken(token, 7))
	require.NotEqual(t, distributed.ChildToken(token, 7), distributed.ChildToken(token, 8))
	require.NotEqual(t, distributed.ChildToken(token, 7), distributed.ChildToken([]byte("other"), 7))
}

// shaky is a driver of package memory with children that fail or are never
// formed. It may have an offer.
type shaky struct {
	distributed.Driver
	offer []byte
	child func(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error)
	ops   *int // exchanges of splits
}

func (s *shaky) Offer() []byte { return s.offer }

func (s *shaky) Start(op *distributed.Op) error {
	if op.Kind == distributed.Agree {
		*s.ops++
	}
	return s.Driver.Start(op)
}

func (s *shaky) Child(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error) {
	if s.child != nil {
		return s.child(ctx, c)
	}
	return s.Driver.Child(ctx, c)
}

// formShaky makes a group whose drivers a test can change.
func formShaky(t *testing.T, n int, timeout time.Duration) ([]*distributed.Group, []*shaky) {
	t.Helper()
	network := memory.NewNetwork()
	groups, drivers := make([]*distributed.Group, n), make([]*shaky, n)
	for r := range drivers {
		drivers[r] = &shaky{ops: new(int)}
	}
	for r, err := range grouptest.OnAll(drivers, func(r int, s *shaky) (err error) {
		l := distributed.Link{Rank: r, Size: n, GroupID: "g", Token: make([]byte, 32), Addrs: make([]string, n), OpTimeout: timeout}
		groups[r], err = distributed.Form(t.Context(), l, func(ctx context.Context, l distributed.Link) (_ distributed.Driver, err error) {
			s.Driver, err = network.Open(ctx, l)
			return s, err
		})
		return err
	}) {
		require.NoError(t, err, "rank %d", r)
	}
	return groups, drivers
}

// onAll runs f on all ranks at once.
func onAll(groups []*distributed.Group, f func(g *distributed.Group) error) []error {
	return grouptest.OnAll(groups, func(_ int, g *distributed.Group) error { return f(g) })
}

// TestAllRanksTakePart: no rank leaves a split before all exchanges are done,
// whichever child it joins and whatever fails on it; a failure of one rank is
// an error on all but does not end the group.
func TestAllRanksTakePart(t *testing.T) {
	broken := errors.New("no rail is free")
	colors := []int{0, 0, distributed.Undefined, 1, 2, 2} // 1 is alone, 2 fails on rank 5
	for name, c := range map[string]struct {
		bad     int // the rank that cannot form its child, or -1
		offer   int // the rank that offers something, or -1
		color   int // of rank 3
		rounds  int
		problem string
	}{
		"all is well":    {-1, -1, 1, 2, ""},
		"with offers":    {-1, 4, 1, 3, ""},
		"one fails":      {5, -1, 1, 2, "no rail is free"},
		"one has no say": {-1, 0, -9, 2, "rank 3 has color -9"},
	} {
		t.Run(name, func(t *testing.T) {
			groups, drivers := formShaky(t, len(colors), time.Minute)
			var mu sync.Mutex
			var formed []*distributed.Group
			if c.offer >= 0 {
				drivers[c.offer].offer = []byte("rails: 2")
			}
			for r, d := range drivers {
				d.child = func(_ context.Context, child distributed.ChildSpec) (*distributed.Group, error) {
					if r == c.bad {
						return nil, broken
					}
					for i, m := range child.Members {
						want := ""
						if m == c.offer {
							want = "rails: 2"
						}
						if string(child.Offers[i]) != want {
							return nil, errors.New("another offer")
						}
					}
					g := distributed.Local() // any group will do
					mu.Lock()
					defer mu.Unlock()
					formed = append(formed, g)
					return g, nil
				}
			}
			try := func(color int) []error {
				return onAll(groups, func(g *distributed.Group) error {
					mine := colors[g.Rank()]
					if g.Rank() == 3 {
						mine = color
					}
					child, err := g.Split(t.Context(), mine, 0)
					if (child != nil) != (err == nil && mine != distributed.Undefined) {
						return errors.New("a child that should not be, or none that should")
					}
					return err
				})
			}
			for r, err := range try(c.color) {
				want := c.rounds
				if c.color == -9 { // the offers are exchanged before the split fails
					want = 2
				}
				require.Equal(t, want, *drivers[r].ops, "rank %d", r)
				if c.problem == "" {
					require.NoError(t, err, "rank %d", r)
					continue
				}
				require.ErrorContains(t, err, c.problem, "rank %d", r)
				op := grouptest.OpError(t, err)
				require.Equal(t, []any{"split", r}, []any{op.Op, op.Rank})
				if c.bad >= 0 {
					require.ErrorIs(t, err, distributed.ErrBootstrap)
					require.Equal(t, r == c.bad, errors.Is(err, broken))
				}
			}
			if c.problem != "" {
				for _, g := range formed {
					require.ErrorIs(t, g.Barrier(t.Context()), distributed.ErrClosed, "what was formed is closed again")
				}
			}
			for _, d := range drivers {
				d.child, d.offer = nil, nil
			}
			for r, err := range try(1) { // the group still works
				require.NoError(t, err, "rank %d", r)
			}
		})
	}
}

// TestOutOfStep: when ranks are not in the same split of the same group, all of
// them notice and their group fails.
func TestOutOfStep(t *testing.T) {
	groups, _ := formShaky(t, 3, time.Minute)
	for r, err := range onAll(groups, func(g *distributed.Group) error {
		if g.Rank() == 1 {
			g.SkipSplit()
		}
		_, err := g.Split(t.Context(), distributed.Undefined, 0)
		return err
	}) {
		require.ErrorIs(t, err, distributed.ErrDesync, "rank %d", r)
		require.ErrorIs(t, groups[r].Barrier(t.Context()), distributed.ErrDesync)
	}
}

// TestFormingEnds: the forming of a child ends by its time limit, by the
// failure of the parent and by the context.
func TestFormingEnds(t *testing.T) {
	cause := errors.New("the parent has failed")
	for name, c := range map[string]struct {
		timeout time.Duration
		end     func(g *distributed.Group, cancel context.CancelCauseFunc)
		want    error
	}{
		"limit":   {300 * time.Millisecond, func(*distributed.Group, context.CancelCauseFunc) {}, distributed.ErrTimeout},
		"parent":  {time.Hour, func(g *distributed.Group, _ context.CancelCauseFunc) { g.Fail(cause) }, cause},
		"context": {time.Hour, func(_ *distributed.Group, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
	} {
		t.Run(name, func(t *testing.T) {
			groups, drivers := formShaky(t, 2, c.timeout)
			for r, err := range onAll(groups, func(g *distributed.Group) error {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				drivers[g.Rank()].child = func(ctx context.Context, _ distributed.ChildSpec) (*distributed.Group, error) {
					c.end(g, cancel)
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				_, err := g.Split(ctx, 0, 0)
				return err
			}) {
				require.Error(t, err, "rank %d", r)
				require.ErrorContains(t, err, c.want.Error())
				after := groups[r].Describe() // still there
				require.Equal(t, "memory", after.Kind)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			failed := !errors.Is(groups[0].Barrier(over), context.Canceled)
			require.Equal(t, name != "limit", failed, "the end of the context ends the group, that of the limit does not")
		})
	}
}

// TestManySplits: closed children leave nothing behind in their parent.
func TestManySplits(t *testing.T) {
	groups := memory.Groups(3)
	for range 30 {
		for r, err := range onAll(groups, func(g *distributed.Group) error {
			c, err := g.Split(t.Context(), g.Rank()/2, 0)
			if err != nil {
				return err
			}
			return c.Close()
		}) {
			require.NoError(t, err, "rank %d", r)
			require.Zero(t, groups[r].Children())
		}
	}
}

// TestErrorsNameTheWorld: errors of a child name ranks by their world rank too.
func TestErrorsNameTheWorld(t *testing.T) {
	err := &distributed.OpError{Op: "all_sum", Seq: 4, Rank: 0, Peer: 1, Addr: "node:9", World: []int{6, 2}, Err: distributed.ErrTimeout}
	require.EqualError(t, err, "all_sum #4 on rank 0 (world rank 6): rank 1 (world rank 2) at node:9: deadline passed")
	require.Equal(t, 2, err.WorldPeer())
	err.World = nil
	require.EqualError(t, err, "all_sum #4 on rank 0: rank 1 at node:9: deadline passed")
	require.Equal(t, 1, err.WorldPeer())
	err.Peer = -1
	require.Equal(t, -1, err.WorldPeer())

	l := distributed.Link{World: []int{6, 2}}
	require.Equal(t, 1, l.Culprit(&distributed.PeerError{Rank: 2}))
	require.Equal(t, -1, l.Culprit(&distributed.PeerError{Rank: 1}), "no member")
	require.Equal(t, 0, l.Culprit(&distributed.OpError{Peer: 0, World: []int{6, 5}}))
	require.Equal(t, -1, l.Culprit(distributed.ErrClosed))
	require.Equal(t, 3, (&distributed.Link{}).Culprit(&distributed.PeerError{Rank: 3}))
}

// TestMembersByRandom checks random tables against the definition: two ranks
// are in one part when their colors are the same, and the one with the lesser
// (key, rank) comes first.
func TestMembersByRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 2000 {
		n := 1 + r.IntN(9)
		colors, keys, at := make([]int, n), make([]int, n), make([]int, n)
		for i := range n {
			colors[i], keys[i] = r.IntN(4)-1, r.IntN(6)-2
		}
		part := map[int]int{}
		for i, p := range distributed.Members(colors, keys) {
			for place, m := range p.Members {
				require.Equal(t, p.Color, colors[m])
				at[m] = place
				_, twice := part[m]
				require.False(t, twice)
				part[m] = i
			}
		}
		key := func(i int) int {
			if keys[i] < 0 {
				return i
			}
			return keys[i]
		}
		for a := range n {
			_, in := part[a]
			require.Equal(t, colors[a] >= 0, in)
			for b := range n {
				if colors[a] >= 0 && colors[a] == colors[b] && a != b {
					require.Equal(t, part[a], part[b])
					require.Equal(t, key(a) < key(b) || key(a) == key(b) && a < b, at[a] < at[b], "%v %v", colors, keys)
				}
			}
		}
	}
}

// TestChildLink: a child's link has its members' addresses in their order, a
// token of its own, and reports suspicions with the parent's ranks.
func TestChildLink(t *testing.T) {
	parent := distributed.Link{Rank: 3, Size: 4, GroupID: "g", Epoch: 8, Token: make([]byte, 32), Addrs: []string{"a", "b", "c", "d"},
		OpTimeout: time.Second, VerdictTimeout: time.Minute, Suspect: func(int, error) { t.Error("not the parent's own") }}
	parent.World = []int{4, 5, 6, 7}
	var told []int
	l := parent.ChildLink(0xabc, 0, []int{3, 1}, func(peer int, _ error) { told = append(told, peer) })
	for peer := -1; peer < 2; peer++ {
		l.Suspect(peer, nil)
	}
	require.Equal(t, []int{-1, 3, 1}, told)
	l.Suspect = nil
	require.Equal(t, distributed.Link{Rank: 0, Size: 2, GroupID: "0000000000000abc", Epoch: 8, Token: distributed.ChildToken(parent.Token, 0xabc),
		Addrs: []string{"d", "b"}, World: []int{7, 5}, OpTimeout: time.Second, VerdictTimeout: time.Minute, Child: true}, l)
	require.NotEqual(t, parent.Token, l.Token)
}
