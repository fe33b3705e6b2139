package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/parallel"
)

// TestRepeats: repeated computations are noted when they happen, not when they are read,
// and stay when the model is reloaded and counts from zero. Time is the time of the
// test's bubble.
func TestRepeats(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		length := 0
		step := func(exchanges uint64) time.Time {
			c.ranks[0].onForward = func(context.Context, model.Step) error {
				c.ranks[0].overflows += exchanges
				return nil
			}
			mustRun(t, l, entry(1, length, model.WantLast, 1))
			length++
			return time.Now()
		}
		step(0)
		require.Empty(t, l.Repeats())

		<-time.After(time.Hour)
		first := step(2)
		<-time.After(repeatSpan / 2)
		step(0)
		last := step(3)
		<-time.After(repeatSpan)
		later := step(1)
		want := []Repeat{
			{Kind: InFloat32, First: first, Last: last, Steps: 2, Exchanges: 5},
			{Kind: InFloat32, First: later, Last: later, Steps: 1, Exchanges: 1},
		}
		require.Equal(t, want, l.Repeats())

		// A step is interrupted, and runs 7 s later in the next epoch, on another model.
		<-time.After(time.Hour)
		c.recovering = true
		c.end(errors.New("rank 1: gone"))
		before := c.ranks[0]
		c.settings.Reduce = parallel.Exact
		go func() {
			<-time.After(7 * time.Second)
			require.NoError(c.t, c.form())
		}()
		mustRun(t, l, entry(2, 0, model.WantLast, 1))
		require.NotSame(t, before, c.ranks[0])
		require.Equal(t, want, l.Repeats(), "a step that waited for its epoch was not interrupted")
		c.ranks[0].onForward = func(context.Context, model.Step) error {
			c.ranks[0].overflows++
			return nil
		}
		mustRun(t, l, entry(2, 1, model.WantLast, 1))
		require.Equal(t, want, l.Repeats(), "with exact the exchange was longer, not repeated")
		c.end(errors.New("rank 1: gone"))
		c.settings.Reduce = parallel.Sum
		require.NoError(t, c.form())

		// A step that is interrupted after an exchange was repeated; the count of the
		// new model starts at zero.
		began := time.Now()
		c.ranks[0].onForward = func(ctx context.Context, _ model.Step) error {
			c.ranks[0].onForward = nil
			c.ranks[0].overflows++
			c.end(errors.New("rank 1: gone again"))
			go func() {
				<-time.After(7 * time.Second)
				require.NoError(c.t, c.form())
			}()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		mustRun(t, l, entry(3, 0, model.WantLast, 1))
		at := time.Now()
		require.Equal(t, began.Add(7*time.Second), at)
		want = append(want,
			Repeat{Kind: InFloat32, First: began, Last: began, Steps: 1, Exchanges: 1},
			Repeat{Kind: AfterLoss, First: at, Last: at, Steps: 1, Took: 7 * time.Second})
		require.Equal(t, want, l.Repeats())
		c.recovering = false
	})
}

// TestRepeatsAreBounded: the oldest of each kind are dropped.
func TestRepeatsAreBounded(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, _ *fakeCluster, _ *Leader) {
		var r repeats
		r.add(Repeat{Kind: AfterLoss})
		began := time.Now()
		for range 3 * maxRepeats {
			r.add(Repeat{Kind: InFloat32, Exchanges: 1})
			<-time.After(repeatSpan)
		}
		got := r.get()
		require.Len(t, got, 1+maxRepeats)
		require.Equal(t, AfterLoss, got[0].Kind, "the other kind pushes out none")
		require.Equal(t, began.Add(2*maxRepeats*repeatSpan), got[1].First)
	})
}
