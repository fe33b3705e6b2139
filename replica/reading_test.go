package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
	"ringmaster/parallel"
)

// TestReading: a rank reads what it did not own in the previous epoch, and a new
// process reads everything. The rank that needs the most time counts.
func TestReading(t *testing.T) {
	experts := func(s Settings, i int, before *parallel.Part) int64 {
		own := s.Placement[i].Experts
		if before == nil {
			return int64(own.Len())
		}
		return int64(own.Len() - own.And(before.Experts).Len())
	}
	members := func(ranks ...int) (out []cluster.Hello) {
		for _, r := range ranks {
			out = append(out, cluster.Hello{Rank: r, Process: string(rune('a' + r)), ReadRate: int64(10 * (r + 1))})
		}
		return out
	}
	var lost [][]parallel.Part // what survivors had
	r := reading{fresh: experts, lost: func(have []parallel.Part) int64 {
		lost = append(lost, have)
		return 0
	}}
	plan := func(m []cluster.Hello, ends ...int) cluster.Reads {
		r.planned(m, Settings{Placement: upTo(ends...)})
		return r.last()
	}
	require.Equal(t, cluster.Reads{Rank: 0, Bytes: 6, Rate: 10}, plan(members(0, 1, 2), 6, 12, 18))
	require.Equal(t, cluster.Reads{Rank: 0, Bytes: 6, Rate: 10}, plan(members(0, 1, 2), 6, 12, 18), "that epoch has not begun")
	r.began([]int{0, 1, 2}, upTo(6, 12, 18))
	require.Equal(t, cluster.Reads{}, plan(members(0, 1, 2), 6, 12, 18))
	require.Empty(t, lost, "all have what they had")
	require.Equal(t, cluster.Reads{Rank: 0, Bytes: 3, Rate: 10}, plan(members(0, 2), 9, 18))
	one := []parallel.Part{upTo(6, 12, 18)[0], upTo(6, 12, 18)[2]}
	require.Equal(t, [][]parallel.Part{one}, lost)
	plan(members(0, 2), 9, 18)
	require.Len(t, lost, 1, "another plan without the same rank")
	plan(members(0), 18)
	require.Equal(t, [][]parallel.Part{one, one[:1]}, lost, "another rank is gone")
	plan(members(0, 2), 9, 18)
	r.began([]int{0, 2}, upTo(9, 18))
	back := members(0, 1, 2)
	require.Equal(t, cluster.Reads{Rank: 1, Bytes: 6, Rate: 20}, plan(back, 6, 12, 18))
	require.Len(t, lost, 2, "nothing is lost since an epoch began")
	r.began([]int{0, 1, 2}, upTo(6, 12, 18))
	back[2].Process = "another"
	require.Equal(t, cluster.Reads{Rank: 2, Bytes: 6, Rate: 30}, plan(back, 6, 12, 18))
	back[2].ReadRate = 0
	require.Equal(t, cluster.Reads{Rank: 2, Bytes: 6}, plan(back, 6, 12, 18), "of unknown duration")
}

// TestReadingAgain: while the interrupted step runs again, the model counts as
// recovering and reports what the ranks have to read.
func TestReadingAgain(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.recovering = true
		c.program.reading.fresh = func(_ Settings, i int, _ *parallel.Part) int64 { return int64(i) * 5 << 20 }
		var seen error
		again := func(context.Context, model.Step) error {
			c.hooks[0].Store(nil)
			_, seen = l.Epoch()
			return nil
		}
		lost := func(ctx context.Context, _ model.Step) error {
			c.hooks[0].Store((*func(context.Context, model.Step) error)(&again))
			go func() {
				c.end(&distributed.PeerError{Rank: 1, Addr: "10.0.0.1:5", Cause: "lost"})
				require.NoError(c.t, c.form())
			}()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		c.hooks[0].Store((*func(context.Context, model.Step) error)(&lost))
		mustRun(t, l, entry(1, 0, model.WantNone, 1, 2, 3))
		require.ErrorIs(t, seen, model.ErrRecovering)
		require.ErrorContains(t, seen, "recovering: epoch 2 runs")
		require.ErrorContains(t, seen, "5.0 MiB of weights that are new to it")
		var r *model.RecoveringError
		require.True(t, errors.As(seen, &r))
		require.Equal(t, time.Duration(0), r.Reading, "no rank has said how fast it reads")
		_, err := l.Epoch()
		require.NoError(t, err, "the step has run")
		c.recovering = false
	})
}
