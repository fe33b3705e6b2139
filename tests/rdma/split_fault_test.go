//go:build cgo && (linux || darwin)

package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/internal/testenv"
)

// TestSplitBesideOther: if one rank splits while another begins some other
// operation on the same group, all ranks learn that their operations differ,
// long before the deadline: over rails and over the side channel.
func TestSplitBesideOther(t *testing.T) {
	b := func(n int) []byte { return make([]byte, n) }
	others := []struct {
		name string
		do   func(ctx context.Context, g *distributed.Group) error
	}{
		{"barrier", func(ctx context.Context, g *distributed.Group) error { return g.Barrier(ctx) }},
		{"sum", func(ctx context.Context, g *distributed.Group) error {
			return g.AllSum(ctx, b(100_000), b(100_000), distributed.Uint8)
		}},
		{"started sum", func(ctx context.Context, g *distributed.Group) error {
			return g.StartAllSum(ctx, b(400_000), b(400_000), distributed.Uint8).Wait()
		}},
		{"gather like a split's", func(ctx context.Context, g *distributed.Group) error {
			return g.AllGather(ctx, b(48*g.Size()), b(48))
		}},
		{"broadcast", func(ctx context.Context, g *distributed.Group) error { return g.Broadcast(ctx, b(9000), 0) }},
		{"scatter", func(ctx context.Context, g *distributed.Group) error {
			return g.ReduceScatter(ctx, b(64), b(64*g.Size()), nil, distributed.Uint8)
		}},
		{"gather to rank 0 and a barrier", func(ctx context.Context, g *distributed.Group) error {
			sizes := make([]int, g.Size())
			for r := range sizes {
				sizes[r] = 48
			}
			return errors.Join(g.Gather(ctx, b(48*g.Size()), b(48), sizes, 0), g.Barrier(ctx))
		}},
		{"exchange", func(ctx context.Context, g *distributed.Group) error {
			n, r := g.Size(), g.Rank()
			return g.SendRecv(ctx, b(5000), (r+n-1)%n, b(5000), (r+1)%n)
		}},
		{"recv from rank 0", func(ctx context.Context, g *distributed.Group) error { return g.Recv(ctx, b(10), 0) }},
		{"large send to rank 0", func(ctx context.Context, g *distributed.Group) error { return g.Send(ctx, b(8<<20), 0) }},
		{"small send to rank 0 and a barrier", func(ctx context.Context, g *distributed.Group) error {
			return errors.Join(g.Send(ctx, b(10), 0), g.Barrier(ctx))
		}},
	}
	for _, w := range []struct {
		name string
		net  net
		n    int
		odd  int // the rank that calls another operation
	}{
		{"2 ranks", meshOf(2, 1, ""), 2, 1},
		{"mesh of 4", meshOf(4, 1, ""), 4, 2},
		{"ring of 4, no cable between the two", ringOf(4, 2, ""), 4, 2},
		{"ring of 5, RC", ringOf(5, 1, "link=eth"), 5, 1},
	} {
		for _, other := range others {
			t.Run(w.name+", "+other.name, func(t *testing.T) {
				x := group(t, w.net, w.n, nil)
				begun := time.Now()
				for r, err := range x.each(func(g *distributed.Group) error {
					if g.Rank() == w.odd {
						return other.do(t.Context(), g)
					}
					c, err := g.Split(t.Context(), 0, 0)
					if c != nil {
						return errors.New("the split made a child")
					}
					return err
				}) {
					require.ErrorIs(t, err, distributed.ErrDesync, "rank %d", r)
					var op *distributed.OpError
					require.ErrorAs(t, err, &op)
					require.NotEqual(t, r, op.Peer)
				}
				require.Less(t, time.Since(begun), 20*time.Second, "the deadline is a minute")
			})
		}
	}
}

// told records the suspicions that the owners of links received.
type told struct {
	mu   sync.Mutex
	list []string // "rank: peer"
	why  []error
	some chan struct{}
}

func newTold() *told { return &told{some: make(chan struct{}, 64)} }

func (s *told) by(rank int) func(int, error) {
	return func(peer int, cause error) {
		s.mu.Lock()
		s.list = append(s.list, fmt.Sprintf("%d: %d", rank, peer))
		s.why = append(s.why, cause)
		s.mu.Unlock()
		s.some <- struct{}{}
	}
}

func (s *told) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.list...)
}

// within waits for an error that must arrive.
func within(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
		return nil
	}
}

// TestSuspicionOfAChild: a child's suspicion, over rails or over TCP, is
// reported to the owner of the link, once, by the rank's number in the
// outermost group; the owner's verdict ends all of the groups.
func TestSuspicionOfAChild(t *testing.T) {
	for _, c := range []struct {
		name, words, fault string
		kind               string
		cause              error
	}{
		{"a completion that failed", "", "fault device=r1to3_0 on=send do=status:12", "rdma", distributed.ErrPeerGone},
		{"a lost message", "", "fault device=r3to1_0 on=send do=drop count=all", "rdma", distributed.ErrTimeout},
		{"late, over TCP", "max_qp=1 told_qp=1", "", "tcp", distributed.ErrTimeout},
		{"late, over rails", "", "", "rdma", distributed.ErrTimeout},
	} {
		for depth := 1; depth <= 2; depth++ {
			t.Run(fmt.Sprintf("%s, depth %d", c.name, depth), func(t *testing.T) {
				if depth > 1 {
					testenv.Need(t, testenv.Full, "suspicions of a child's child")
				}
				t.Parallel()
				s := newTold()
				verdict := &distributed.PeerError{Rank: 3, Addr: "there", Cause: "no heartbeat"}
				x := group(t, meshOf(4, 1, c.words), 4, func(r int, o *rdma.Options, l *distributed.Link) {
					o.Tuning.Mesh = true
					l.OpTimeout, l.VerdictTimeout = 8*time.Second, time.Hour
					if r == 1 {
						l.Suspect = s.by(r)
					}
				})
				children := splits(t, x.groups, []int{0, 1, 0, 1}, []int{3, 2, 1, 0}) // 3 and 1 are 0 and 1
				for range depth - 1 {
					children = splits(t, children, []int{0, 0, 0, 0}, []int{0, 0, 1, 1}) // 1 and 3 are 0 and 1
				}
				require.Equal(t, c.kind, children[1].Kind())
				if c.fault != "" {
					require.NoError(t, x.fabric.Script(c.fault))
				}
				late := make(chan error, 1)
				if c.fault != "" {
					go func() { late <- checkedSum(context.Background(), children[3], 5000) }()
				}
				done := make(chan error, 1)
				go func() {
					var err error
					for range 3 { // a failed last send is reported by the next operation
						if err == nil {
							err = checkedSum(context.Background(), children[1], 5000)
						}
					}
					done <- err
				}()
				select {
				case <-s.some:
				case err := <-done:
					t.Fatalf("no rank was told: %v", err)
				case <-time.After(40 * time.Second):
					t.Fatal("no rank was told")
				}
				require.Equal(t, []string{"1: 3"}, s.all())
				require.ErrorIs(t, s.why[0], c.cause)
				x.groups[1].Fail(verdict)
				err := within(t, done)
				require.ErrorIs(t, err, verdict)
				var op *distributed.OpError
				require.ErrorAs(t, err, &op)
				require.Equal(t, 3, op.WorldPeer(), "%v", err)
				require.ErrorIs(t, x.groups[1].Barrier(t.Context()), verdict)
				for r := range x.groups {
					x.groups[r].Fail(verdict)
				}
				if c.fault != "" {
					_ = within(t, late) // it may have received all that it needs
				}
				require.Equal(t, []string{"1: 3"}, s.all(), "told once")
			})
		}
	}
}

// TestClosingAChildIsNoSuspicion: the members of a child close it one after the
// other. That alone reports no suspicion to the parent's owner; a member that
// still uses the child gets an error, and that is reported.
func TestClosingAChildIsNoSuspicion(t *testing.T) {
	s := newTold()
	x := group(t, meshOf(3, 1, ""), 3, func(r int, _ *rdma.Options, l *distributed.Link) {
		l.VerdictTimeout, l.Suspect = 50*time.Millisecond, s.by(r)
	})
	children := splits(t, x.groups, []int{0, 0, 0}, []int{0, 0, 0})
	works(t, children)
	require.NoError(t, children[1].Close())
	children[2].Fail(errors.New("no longer wanted"))
	works(t, x.groups)
	require.Empty(t, s.all())
	require.NoError(t, children[2].Close())
	require.Error(t, children[0].Barrier(t.Context()), "that two of three have left it is known")
	require.Len(t, s.all(), 1)
}

// TestFaultsInAChild injects faults into a child over rails: each member gets an
// error that names a member, within the deadline and one second, no result is
// wrong, and the parent works as before if the fault was confined to the child.
func TestFaultsInAChild(t *testing.T) {
	every := 20 // one fault in this many is injected
	if testenv.Rest(t, testenv.Full, "a fifth of the faults in a child") {
		every = 5
		if testenv.Rest(t, testenv.Exhaustive, "every fault in a child") {
			every = 1
		}
	}
	for _, words := range []string{"", "link=eth rc_timeout_us=2000"} {
		for i, f := range faults {
			if f.unreliable && words != "" {
				continue
			}
			for k, nth := range []int{1, 3} {
				op := operations[(i+3*k)%len(operations)]
				if (i+k)%every != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s, event %d, %s %s", f.name, nth, op.name, words), func(t *testing.T) {
					t.Parallel()
					faultInChild(t, words, f, nth, op.do)
				})
			}
		}
	}
}

func faultInChild(t *testing.T, words string, f fault, nth int, do func(ctx context.Context, g *distributed.Group) error) {
	x := group(t, meshOf(4, 1, words+" poison=1"), 4, func(_ int, o *rdma.Options, l *distributed.Link) {
		o.Tuning.Cap, o.Tuning.OneRail, o.Tuning.Mesh = -1, -1, true
		l.OpTimeout, l.VerdictTimeout = time.Minute, 50*time.Millisecond
		if !f.harmless {
			l.OpTimeout = 4 * time.Second // the child must be formed in half of it
		}
	})
	children := splits(t, x.groups, []int{7, 7, 7, none}, []int{2, 1, 0, 0})
	require.Equal(t, "rdma", children[0].Kind())
	require.NoError(t, x.fabric.Script(fmt.Sprintf("fault device=%s %s nth=%d", device(0, 1, 0), f.words, nth)))
	most := 12
	for r, err := range onAll(children, func(_ int, g *distributed.Group) error {
		for range most {
			if err := do(context.Background(), g); err != nil {
				return err
			}
		}
		return nil
	}) {
		if children[r] == nil {
			continue
		}
		if err == nil {
			require.True(t, f.harmless || x.fabric.Count("fault:0") == 0 || lastOf(f), "rank %d ends well", r)
			continue
		}
		op := f.failed(t, r, err)
		require.Contains(t, []int{0, 1, 2}, op.WorldPeer(), "%v", err)
		require.Less(t, op.Elapsed, 5*time.Second, "%v", err)
	}
}

// TestHostDiesInAChild: the other members of a child detect a rank that dies silently
// within the deadline, and no other rank does.
func TestHostDiesInAChild(t *testing.T) {
	testenv.Need(t, testenv.Full, "a host that dies in a child")
	x := group(t, meshOf(4, 2, ""), 4, func(_ int, o *rdma.Options, l *distributed.Link) { l.OpTimeout = 6 * time.Second })
	children := splits(t, x.groups, []int{0, 0, 0, 0}, []int{0, 0, 0, 0})
	pairs := splits(t, children, []int{0, 1, 1, 0}, []int{0, 0, 0, 0})
	works(t, pairs)
	require.NoError(t, x.fabric.Script("host 3 dead"))
	errs := onAll(pairs, func(r int, g *distributed.Group) error {
		if r == 3 {
			return nil
		}
		return checkedSum(t.Context(), g, 1000)
	})
	require.ErrorIs(t, errs[0], distributed.ErrTimeout)
	var op *distributed.OpError
	require.ErrorAs(t, errs[0], &op)
	require.Less(t, op.Elapsed, 7*time.Second)
	require.ErrorContains(t, errs[0], "rank 1 (world rank 3)")
	require.NoError(t, errs[1], "the other child does not care")
	require.NoError(t, errs[2])
}
