//go:build cgo && (linux || darwin)

package rdma

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
)

// drops are the script words for devices on which an unreliable queue pair
// loses a message for which no receive is posted, as on soft-RoCE.
const drops = "link=eth norecv=drop"

// TestReceiveComesFirst: where a message without a receive is lost, none is ever
// sent before its receive is posted: all operations on 2 to 4 ranks succeed and
// the fabric has lost nothing. Ranks are not synchronised, and messages move
// late or at once.
func TestReceiveComesFirst(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for rails := 1; rails <= 2; rails++ {
			for _, words := range []string{drops, drops + " late=1 poison=1", "link=ib norecv=kill"} {
				for _, ring := range []bool{false, true} {
					t.Run(fmt.Sprintf("ranks=%d rails=%d ring=%v %s", n, rails, ring, words), func(t *testing.T) {
						w := meshOf(n, rails, words)
						if ring {
							w = ringOf(n, rails, words)
						}
						x := group(t, w, n, func(_ int, o *rdma.Options, l *distributed.Link) {
							o.Tuning.Type, o.Ring, o.Tuning.Mesh, o.Tuning.OneRail = verbs.UC, ring, !ring, -1
							o.Tuning.Cap = -1 // many messages
							if n == 3 {
								o.Tuning.Force = plan.TwoShot
							}
							l.OpTimeout = 20 * time.Second
						})
						require.Contains(t, x.groups[0].Describe().Topology, ", UC,")
						for range 3 {
							for _, op := range operations {
								x.all(t, func(g *distributed.Group) error {
									if err := op.do(t.Context(), g); err != nil {
										return fmt.Errorf("%s: %w", op.name, err)
									}
									return nil
								})
							}
						}
						require.Zero(t, x.fabric.Count("lost"))
					})
				}
			}
		}
	}
}

// TestSenderAhead: a rank that sends message after message while the other has
// not begun to receive is held back, and nothing is lost.
func TestSenderAhead(t *testing.T) {
	const count = 20
	for _, n := range []int{10, 9000, 40_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			x := group(t, meshOf(2, 1, drops), 2, func(_ int, o *rdma.Options, l *distributed.Link) {
				o.Tuning.Type, o.Tuning.Cap = verbs.UC, -1
				l.OpTimeout = 20 * time.Second
			})
			before := x.fabric.Count("messages")
			x.all(t, func(g *distributed.Group) error {
				if g.Rank() == 0 {
					for i := range count {
						if err := g.Send(t.Context(), pattern(n, i), 1); err != nil {
							return fmt.Errorf("message %d: %w", i, err)
						}
					}
					return nil
				}
				if err := grown(t.Context(), func() bool { return x.fabric.Count("messages") > before }); err != nil {
					return err
				}
				for i := range count {
					got := make([]byte, n)
					if err := g.Recv(t.Context(), got, 0); err != nil {
						return fmt.Errorf("message %d: %w", i, err)
					}
					if err := sentBy(i, got); err != nil {
						return fmt.Errorf("message %d: %w", i, err)
					}
				}
				return nil
			})
			require.Zero(t, x.fabric.Count("lost"))
		})
	}
}

// grown polls for a condition that has no notification.
func grown(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
