package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/model"
)

// replace replaces a rank by a new process; its model has no sequences.
func (c *fakeCluster) replace(rank int) {
	c.wg.Wait()
	require.NoError(c.t, c.workers[rank].Close(context.Background()))
	c.behaved(rank)
	c.workers[rank] = NewWorker(rank, hostOf(c.load))
}

// TestAnswersOutliveEpochs: an epoch may end before, within or after a step, on one rank
// earlier than on another, and ranks may stay or be new processes. In each case the next
// epoch continues the answers with the tokens of an undisturbed group. At the end all ranks
// have the same sequences.
func TestAnswersOutliveEpochs(t *testing.T) {
	epochs, forks, recoveries := 0, 0, uint64(0)
	defer func() {
		require.Greater(t, forks, 40)
		require.Greater(t, epochs, 100)
		require.Greater(t, recoveries, uint64(40))
	}()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			var want [][]int32
			for _, disturbed := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					c, l := newCluster(t, 3)
					if disturbed {
						c.disturb(seed)
					}
					e := newEngine(t, l)
					got := answers(t, e, requestsOf(seed, 90))
					if !disturbed {
						want = got
					} else {
						require.Equal(t, want, got)
						synctest.Wait()
						epochs += int(c.epoch.Number)
						for _, s := range c.ranks[0].Steps() {
							forks += len(s.Forks)
						}
						again, took := l.Recoveries()
						require.Less(t, again, uint64(c.epoch.Number))
						recoveries += again
						require.GreaterOrEqual(t, took, time.Duration(0))
						n, err := l.Epoch()
						require.NoError(t, err)
						require.Zero(t, n, "no sequence was lost")
					}
					require.NoError(t, e.Close(t.Context()))
					// Another step informs the followers of the last commit.
					mustRun(t, l, entry(1<<20, 0, model.WantNone, 1))
					synctest.Wait()
					live := c.ranks[0].Live()
					delete(live, 1<<20)
					for rank := range c.ranks {
						there := c.ranks[rank].Live()
						delete(there, 1<<20)
						require.Equal(t, live, there, "rank %d", rank)
					}
					c.recovering = false
					c.stop(l)
				})
			}
		})
	}
}

// reforms ends the epoch, unless it has ended, and forms the next with the same members.
func (c *fakeCluster) reforms() {
	synctest.Wait()
	c.end(&distributed.PeerError{Rank: -1, Cause: "a rank joins"})
	require.NoError(c.t, c.form())
}

// disturb makes some of the coming steps end their epochs, at most six, and forms the next
// epoch each time.
func (c *fakeCluster) disturb(seed uint64) {
	c.disturbTimes(seed, 1+rand.New(rand.NewPCG(seed, 8)).IntN(6))
}

// disturbTimes is disturb with so many losses.
func (c *fakeCluster) disturbTimes(seed uint64, times int) {
	random := rand.New(rand.NewPCG(seed, 9))
	c.recovering = true
	var arm func(left int)
	arm = func(left int) {
		if left == 0 {
			return
		}
		rank, steps, new := random.IntN(c.size), 1+random.IntN(4), random.IntN(c.size+1)
		after := random.IntN(2) == 0
		hook := func(ctx context.Context, _ model.Step) error {
			if _, err := c.Epoch(); err != nil {
				return nil // of the epoch before
			}
			if steps--; steps > 0 {
				return nil
			}
			c.hooks[rank].Store(nil)
			again := func() {
				c.end(&distributed.PeerError{Rank: 1, Addr: "10.0.0.1:5", Cause: "lost"})
				if 0 < new && new < c.size {
					c.replace(new)
				}
				arm(left - 1)
				require.NoError(c.t, c.form())
			}
			if after { // this rank may finish the step, others too
				go again()
				return nil
			}
			go again()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		c.hooks[rank].Store(&hook)
	}
	arm(times)
}

// TestLogitsOutliveTheirEpoch: the result of a step does not change when the model joins the
// next group before it is read.
func TestLogitsOutliveTheirEpoch(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		for n := range 3 {
			step := model.Step{Entries: []model.Entry{
				{Seq: 1, Pos: n, Tokens: []int32{1}, Want: model.WantLast}, {Seq: 2, Pos: 2 * n, Tokens: []int32{3, 4}, Want: model.WantAll}}}
			rows, err := l.Forward(t.Context(), step)
			require.NoError(t, err)
			require.Len(t, rows, 3)
			var want [][]float32
			for _, row := range rows {
				want = append(want, slices.Clone(row))
			}
			c.recovering = true
			c.end(errors.New("rank 1 joins"))
			require.NoError(t, c.form())
			require.Equal(t, want, rows)
			l.Commit(step)
		}
	})
}

// TestALossThatNobodyMends: the cluster stops recovering while a step waits for the
// next epoch. All sequences are lost, on all ranks, once.
func TestALossThatNobodyMends(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
		c.recovering = true
		verdict := &distributed.PeerError{Rank: 2, Addr: "10.0.0.2:7", Cause: "connection closed"}
		c.end(verdict)
		_, err := l.Epoch()
		require.ErrorIs(t, err, model.ErrRecovering)
		require.NotErrorIs(t, err, model.ErrUnavailable)
		require.Equal(t, 2, l.Len(1))
		ended := forwarding(t.Context(), l, entry(1, 2, model.WantLast, 3))
		c.mu.Lock()
		c.recovering = false
		c.wake()
		c.mu.Unlock()
		wantVerdict(t, l, <-ended, verdict.Error())
		require.Zero(t, l.Len(1))
		n, _ := l.Epoch()
		require.EqualValues(t, 1, n)
		require.NoError(t, c.form())
		mustRun(t, l, entry(2, 0, model.WantLast, 3))
		mustRun(t, l, model.Step{Drop: []model.SeqID{7}})
		synctest.Wait()
		for _, r := range c.ranks {
			require.Equal(t, map[model.SeqID][]int32{2: {3}}, r.Live())
		}
	})
}

// TestARequestLeavesWhileItsStepWaits: a step that waits for the next epoch can be
// cancelled.
func TestARequestLeavesWhileItsStepWaits(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.recovering = true
		c.end(errors.New("rank 1: gone"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := forwarding(ctx, l, entry(1, 0, model.WantLast, 3))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		c.recovering = false
		require.NoError(t, c.form())
		mustRun(t, l, entry(2, 0, model.WantLast, 3))
	})
}

// TestTheLeadersOwnFault: a step that fails because of the leader is not repeated without
// end.
func TestTheLeadersOwnFault(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.recovering = true
		c.ranks[0].onForward = func(context.Context, model.Step) error { return errors.New("layer 3: a kernel failed") }
		_, err := l.Forward(t.Context(), entry(1, 0, model.WantLast, 1))
		require.ErrorIs(t, err, model.ErrUnavailable)
		require.EqualError(t, err, "rank 0: layer 3: a kernel failed")
		n, _ := l.Epoch()
		require.EqualValues(t, 1, n)
	})
}

// TestALateFormDisturbsNothing: an epoch that ended before it could form on this rank,
// because another goroutine had the model, does not take the model from the next one.
func TestALateFormDisturbsNothing(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		over, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("epoch 1 has ended"))
		other := c.settings
		other.Placement = upTo(4, 4)
		settings := encoded(t, other)
		c.recovering = true
		require.EqualError(t, c.program.Form(over, settings), "epoch 1 has ended")
		late := c.epoch
		late.Done = over
		require.EqualError(t, c.program.Start(late), "epoch 1 has ended")
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
		require.Equal(t, c.settings.Placement, c.ranks[0].placement)
	})
}

// TestACommitDoesNotWaitForEver: whatever keeps the model from a commit, the goroutine that
// runs steps continues; the sequences are lost, and the engine learns that.
func TestACommitDoesNotWaitForEver(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
		s := entry(1, 2, model.WantLast, 3)
		_, err := l.Forward(t.Context(), s)
		require.NoError(t, err)
		h := c.program.resident
		require.NoError(t, h.acquire(t.Context()))
		began := time.Now()
		l.Commit(s)
		require.Equal(t, commitLimit, time.Since(began))
		h.release()
		n, err := l.Epoch()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "the engine sees that sequences were lost")
		require.Zero(t, l.Len(1))
		_, err = l.Forward(t.Context(), entry(1, 3, model.WantLast, 4))
		require.ErrorIs(t, err, model.ErrUnavailable)
		mustRun(t, l, entry(2, 0, model.WantLast, 5))
	})
}
