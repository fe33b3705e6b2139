package replica

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

// TestStepIsSentFirst: on one CPU a step is on its way to the other ranks before rank 0
// begins to compute it, so that they do not begin late. Without that all of the steps are late.
func TestStepIsSentFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 5)) // begins the epoch
		var sent atomic.Bool
		send := func() { go sent.Store(true) } // in a goroutine, as the real cluster does
		c.onBegin.Store(&send)
		late := 0
		run := func(context.Context, model.Step) error {
			if !sent.Swap(false) {
				late++
			}
			return nil
		}
		c.hooks[0].Store(&run)
		for i := range 50 {
			mustRun(t, l, entry(1, 1+i, model.WantLast, 5))
		}
		// Go's scheduler sometimes resumes a goroutine that yields at once.
		require.Less(t, late, 25)
	})
}
