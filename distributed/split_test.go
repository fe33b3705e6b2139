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
)

func TestMembers(t *testing.T) {
	const none = distributed.Undefined
	for _, c := range []struct {
		name         string
		colors, keys []int
		want         []distributed.Part
	}{
		{"nobody", nil, nil, []distributed.Part{}},
		{"none joins", []int{none, none}, []int{0, 0}, []distributed.Part{}},
		{"key orders", []int{1, 1, 1}, []int{9, 5, 7}, []distributed.Part{{1, []int{1, 2, 0}}}},
		{"ties by rank", []int{1, 1, 1}, []int{5, 5, 4}, []distributed.Part{{1, []int{2, 0, 1}}}},
		{"key below 0 is the rank", []int{0, 0, 0}, []int{1, -3, 1}, []distributed.Part{{0, []int{0, 1, 2}}}},
		{"colors apart", []int{8, 0, none, 8, 0}, []int{1, 0, 0, 0, 0}, []distributed.Part{{0, []int{1, 4}}, {8, []int{3, 0}}}},
	} {
		require.Equal(t, c.want, distributed.Members(c.colors, c.keys), c.name)
	}
}

// TestIDs: children of any depth, number and color have ids of their own, the
// same wherever they are computed, and tokens of their own.
func TestIDs(t *testing.T) {
	seen := map[uint64]bool{}
	parents := []uint64{distributed.RootID("a", 1), distributed.RootID("a", 2), distributed.RootID("b", 1)}
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

// room is where the ranks of a test meet: one round after the other.
type room struct {
	mu    sync.Mutex
	size  int
	round *round
}

type round struct {
	said [][]byte
	come int
	all  []byte
	full chan struct{}
}

func (r *room) next() { r.round = &round{said: make([][]byte, r.size), full: make(chan struct{})} }

// seat is one rank in it.
type seat struct {
	*room
	rank   int
	failed error
	rounds int
}

func seats(n int) []*seat {
	r := &room{size: n}
	r.next()
	out := make([]*seat, n)
	for i := range out {
		out[i] = &seat{room: r, rank: i}
	}
	return out
}

func (s *seat) Rank() int        { return s.rank }
func (s *seat) Size() int        { return s.size }
func (s *seat) Fail(cause error) { s.failed = cause }

func (s *seat) AllGather(ctx context.Context, dst, src []byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	now := s.round
	now.said[s.rank] = src
	if now.come++; now.come == s.size {
		for _, b := range now.said {
			now.all = append(now.all, b...)
		}
		s.next()
		close(now.full)
	}
	s.mu.Unlock()
	s.rounds++
	select {
	case <-now.full:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if copy(dst, now.all) != len(now.all) || len(dst) != len(now.all) {
		return errors.New("lengths differ")
	}
	return nil
}

// split does one on all seats.
func split(t *testing.T, all []*seat, splitters []*distributed.Splitter, do func(s *seat, of *distributed.Splitter) error) []error {
	t.Helper()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, s := range all {
		running.Go(func() { errs[i] = do(s, splitters[i]) })
	}
	running.Wait()
	return errs
}

func splittersOf(all []*seat, limit time.Duration) []*distributed.Splitter {
	out := make([]*distributed.Splitter, len(all))
	for i := range out {
		out[i] = &distributed.Splitter{ID: 7, Limit: limit}
	}
	return out
}

// TestAllRanksTakePart: no rank leaves a split before all exchanges are done,
// whatever it joins and whatever goes wrong on it, and one rank's failure is an
// error of all but not the end of the group.
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
		"one has no say": {-1, 0, -9, 2, "color -9 of rank 3"},
	} {
		t.Run(name, func(t *testing.T) {
			all := seats(len(colors))
			splitters := splittersOf(all, time.Minute)
			var mu sync.Mutex
			var formed []distributed.Group
			try := func(bad int, color int) []error {
				return split(t, all, splitters, func(s *seat, of *distributed.Splitter) error {
					mine := colors[s.rank]
					if s.rank == 3 {
						mine = color
					}
					var offer []byte
					if s.rank == c.offer {
						offer = []byte("rails: 2")
					}
					g, err := of.Split(t.Context(), s, mine, 0, offer, func(_ context.Context, child *distributed.Child) (distributed.Group, error) {
						if s.rank == bad {
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
					})
					if (g != nil) != (err == nil && mine != distributed.Undefined) {
						return errors.New("a child that should not be, or none that should")
					}
					return err
				})
			}
			for r, err := range try(c.bad, c.color) {
				require.Equal(t, c.rounds, all[r].rounds, "rank %d", r)
				require.NoError(t, all[r].failed, "rank %d", r)
				if c.problem == "" {
					require.NoError(t, err, "rank %d", r)
					continue
				}
				require.ErrorContains(t, err, c.problem, "rank %d", r)
				var op *distributed.OpError
				require.ErrorAs(t, err, &op)
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
			for r, err := range try(-1, 1) { // the group lives on
				require.NoError(t, err, "rank %d", r)
			}
		})
	}
}

// TestOutOfStep: ranks that are not in the same split of the same group find
// out, all of them, and their group has failed.
func TestOutOfStep(t *testing.T) {
	all := seats(3)
	splitters := splittersOf(all, time.Minute)
	splitters[1].ID = 8
	for r, err := range split(t, all, splitters, func(s *seat, of *distributed.Splitter) error {
		_, err := of.Split(t.Context(), s, distributed.Undefined, 0, nil, nil)
		return err
	}) {
		require.ErrorIs(t, err, distributed.ErrDesync, "rank %d", r)
		require.Error(t, all[r].failed)
	}
}

// TestFormingEnds: by its limit, by the failure of the parent, by the context.
func TestFormingEnds(t *testing.T) {
	cause := errors.New("the parent has failed")
	for name, c := range map[string]struct {
		limit time.Duration
		end   func(s *distributed.Splitter, cancel context.CancelCauseFunc)
		want  error
	}{
		"limit":   {time.Millisecond, func(*distributed.Splitter, context.CancelCauseFunc) {}, distributed.ErrTimeout},
		"parent":  {time.Hour, func(s *distributed.Splitter, _ context.CancelCauseFunc) { s.Fail(cause) }, cause},
		"context": {time.Hour, func(_ *distributed.Splitter, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
	} {
		t.Run(name, func(t *testing.T) {
			all := seats(2)
			splitters := splittersOf(all, c.limit)
			for r, err := range split(t, all, splitters, func(s *seat, of *distributed.Splitter) error {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				_, err := of.Split(ctx, s, 0, 0, nil, func(ctx context.Context, _ *distributed.Child) (distributed.Group, error) {
					c.end(of, cancel)
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				return err
			}) {
				require.Error(t, err, "rank %d", r)
				require.ErrorContains(t, err, c.want.Error())
				require.Equal(t, name == "context", all[r].failed != nil, "the end of the context ends the group")
			}
		})
	}
}

// TestErrorsNameTheWorld: a rank of a child is named with its number in the
// outermost group.
func TestErrorsNameTheWorld(t *testing.T) {
	err := &distributed.OpError{Op: "all_sum", Seq: 4, Rank: 0, Peer: 1, Addr: "node:9", World: []int{6, 2}, Err: distributed.ErrTimeout}
	require.EqualError(t, err, "all_sum #4 on rank 0 (world rank 6): rank 1 (world rank 2) at node:9: deadline passed")
	require.Equal(t, 2, err.WorldPeer())
	err.World = nil
	require.EqualError(t, err, "all_sum #4 on rank 0: rank 1 at node:9: deadline passed")
	require.Equal(t, 1, err.WorldPeer())
	err.Peer = -1
	require.Equal(t, -1, err.WorldPeer())

	s := distributed.Splitter{World: []int{6, 2}}
	require.Equal(t, 1, s.Culprit(&distributed.PeerError{Rank: 2}))
	require.Equal(t, -1, s.Culprit(&distributed.PeerError{Rank: 1}), "no member")
	require.Equal(t, 0, s.Culprit(&distributed.OpError{Peer: 0, World: []int{6, 5}}))
	require.Equal(t, -1, s.Culprit(distributed.ErrClosed))
	require.Equal(t, 3, (&distributed.Splitter{}).Culprit(&distributed.PeerError{Rank: 3}))
}

// TestMembersByRandom: any table against the definition: two ranks are in one
// part when their colors are the same, and the one with the lesser (key, rank)
// comes first.
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
// token of its own, and tells suspicions by the parent's ranks.
func TestChildLink(t *testing.T) {
	parent := distributed.Link{Rank: 3, Size: 4, GroupID: "g", Epoch: 8, Token: make([]byte, 32), Addrs: []string{"a", "b", "c", "d"},
		OpTimeout: time.Second, VerdictTimeout: time.Minute, Suspect: func(int, error) { t.Error("not the parent's own") }}
	c := &distributed.Child{ID: 0xabc, Rank: 0, Members: []int{3, 1}, World: []int{7, 5}}
	var told []int
	l := c.Link(parent, func(peer int, _ error) { told = append(told, peer) })
	for peer := -1; peer < 2; peer++ {
		l.Suspect(peer, nil)
	}
	require.Equal(t, []int{-1, 3, 1}, told)
	l.Suspect = nil
	require.Equal(t, distributed.Link{Rank: 0, Size: 2, GroupID: "0000000000000abc", Epoch: 8, Token: distributed.ChildToken(parent.Token, 0xabc),
		Addrs: []string{"d", "b"}, World: []int{7, 5}, OpTimeout: time.Second, VerdictTimeout: time.Minute}, l)
	require.NotEqual(t, parent.Token, l.Token)
}
