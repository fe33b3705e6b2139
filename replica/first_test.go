package replica

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

// sending is a cluster that sends what Begin is given in a goroutine, as the real one does.
type sending struct {
	*fakeCluster
	sent atomic.Bool
}

func (s *sending) Begin(epoch uint32, payload []byte) (uint64, error) {
	go s.sent.Store(true)
	return s.fakeCluster.Begin(epoch, payload)
}

// TestStepIsSentFirst: on one CPU a step is on its way to the other ranks before rank 0
// begins to compute it, so that they do not begin late. Without that all of the steps are late.
func TestStepIsSentFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 5)) // begins the epoch
		s := &sending{fakeCluster: c}
		l.cluster = s
		late := 0
		run := func(context.Context, model.Step) error {
			if !s.sent.Swap(false) {
				late++
			}
			return nil
		}
		c.hooks[0].Store(&run)
		for i := range 50 {
			mustRun(t, l, entry(1, 1+i, model.WantLast, 5))
		}
		// The scheduler of Go now and then lets a goroutine that yields run on at once.
		require.Less(t, late, 25)
	})
}
