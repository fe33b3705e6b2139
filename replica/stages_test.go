package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
	"ringmaster/parallel"
)

// inStages forms an epoch in which each rank is a stage.
func (c *fakeCluster) inStages(t *testing.T) {
	var layers []parallel.Range
	var parts []parallel.Placement
	for i := range c.members {
		layers = append(layers, parallel.Range{Start: i, End: i + 1})
		parts = append(parts, upTo(8))
	}
	c.settings.Placement = parallel.InStages(layers, parts)
	if c.why == nil {
		c.end(errors.New("the stages change"))
	}
	require.NoError(t, c.form())
}

// TestStagesRunAhead: rank 0 does not wait for later stages in a step without logits, but a
// step with logits waits for all before it; what differs in an earlier step then ends it.
func TestStagesRunAhead(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.inStages(t)
		release := make(chan struct{})
		slow := func(ctx context.Context, _ model.Step) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		c.hooks[1].Store(&slow)
		mustRun(t, l, entry(1, 0, model.WantNone, 1, 2, 3))
		mustRun(t, l, entry(1, 3, model.WantNone, 4, 5))
		synctest.Wait() // rank 1 is in the first step
		losses, err := l.Epoch()
		require.NoError(t, err)
		require.Zero(t, losses, "the first sequences of a group in stages are not lost")
		require.Empty(t, c.committed(1), "rank 1 is still in the first step")
		ended := forwarding(t.Context(), l, entry(1, 5, model.WantLast, 6))
		select {
		case err := <-ended:
			t.Fatalf("a step with logits ended before the stages behind: %v", err)
		default:
		}
		close(release)
		require.NoError(t, <-ended)
		l.Commit(entry(1, 5, model.WantLast, 6))
		require.Equal(t, 6, l.Len(1))

		c.ranks[1].flip = 0
		mustRun(t, l, entry(1, 6, model.WantNone, 7))
		synctest.Wait() // rank 1 has run it
		_, err = l.Forward(t.Context(), entry(1, 7, model.WantLast, 8))
		require.ErrorContains(t, err, "differs from rank 0 at layer 0")
	})
}

// TestSequencesEndWithStages: no rank has all of a sequence, so it does not outlive the epoch,
// whether stages begin or end; the model itself remains.
func TestSequencesEndWithStages(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
		for id := model.SeqID(1); id < 4; id++ {
			switch id {
			case 1, 2:
				c.inStages(t)
			case 3:
				c.end(errors.New("without stages"))
				c.of(0, 1)
				require.NoError(t, c.form())
			}
			_, err := l.Forward(t.Context(), entry(id, 2, model.WantLast, 3))
			require.ErrorIs(t, err, model.ErrUnavailable)
			require.ErrorContains(t, err, "was lost with its epoch")
			require.Zero(t, l.Len(id))
			mustRun(t, l, entry(id+1, 0, model.WantLast, 1, 2))
			require.Equal(t, 2, l.Len(id+1))
		}
	})
}

// TestSequencesInStagesStay: no snapshot of a part of the layers leaves rank 0.
func TestSequencesInStagesStay(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.inStages(t)
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
		_, err := l.Export(1, []int32{1, 2}, 0).Next()
		require.ErrorContains(t, err, "divided among stages")
	})
}
