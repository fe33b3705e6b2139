package replica

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/engine"
)

// TestTheBudgetOfTheSettings: every rank gets the budget of the epoch's settings,
// without loading its model again, and the engine keeps to it on all of them.
func TestTheBudgetOfTheSettings(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		require.Zero(t, l.SequenceBudget())
		e := newEngine(t, l)
		for epoch, budget := range []int64{3*(10+32) + 5, 10 + 64} {
			c.end(&distributed.PeerError{Rank: 1, Addr: "10.0.0.2:9", Cause: "left"})
			synctest.Wait()
			c.settings.SequenceBudget = budget
			require.NoError(t, c.form())
			require.Equal(t, budget, l.SequenceBudget())
			require.Equal(t, c.ranks[1].SequenceBytes(30), l.SequenceBytes(30))
			answers(t, e, requests(uint64(epoch)))
			require.LessOrEqual(t, e.Stats().Memory, budget)
			_, err := e.Submit(t.Context(), engine.Request{Prompt: make([]int32, 65), MaxTokens: 1})
			if epoch == 1 {
				require.ErrorIs(t, err, engine.ErrTooLarge)
			}
		}
		require.Equal(t, []int{1, 1, 1}, c.loads)
		for _, r := range c.ranks {
			require.EqualValues(t, 10+64, r.SequenceBudget())
		}
		require.NoError(t, e.Close(t.Context()))
	})
}
