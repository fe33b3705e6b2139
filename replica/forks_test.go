package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/model"
)

// TestForksOutliveEpochs: sequences grow, are rewound and forked and take checkpoints, while
// epochs end before, within and after steps, and ranks are replaced. Their logits stay those
// of sequences that ran all their tokens, and all ranks have the same sequences and
// checkpoints.
func TestForksOutliveEpochs(t *testing.T) {
	var forked, old, freed int
	var epochs, recoveries uint64
	defer func() {
		require.Greater(t, forked, 80)
		require.Greater(t, old, 80)
		require.Greater(t, freed, 100)
		require.Greater(t, epochs, uint64(40))
		require.Greater(t, recoveries, uint64(20))
	}()
	for size := 1; size <= 5; size++ {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(size, " ranks, seed ", seed), func(t *testing.T) {
				inCluster(t, size, func(t *testing.T, c *fakeCluster, l *Leader) {
					f := newLife(t, l, seed)
					f.rarely, f.between = 4, c.reforms
					c.disturb(seed)
					for range 80 {
						f.step(6, 4)
					}
					c.alike(l, c.others()...)
					forked, old, freed = forked+f.forked, old+f.old, freed+f.freed
					n, _ := l.Recoveries()
					epochs, recoveries = epochs+uint64(c.epoch.Number), recoveries+n
					c.recovering = false
				})
			})
		}
	}
}

// TestAnInterruptedStepForksAgain: a step that takes a checkpoint and makes forks is
// interrupted on one rank, before or after the others have run it, and runs again in the next
// epoch, in which that rank may be a new process.
func TestAnInterruptedStepForksAgain(t *testing.T) {
	for _, rank := range []int{0, 1} { // where it is interrupted
		for _, replaced := range []int{0, 1, 2} { // 0 for none
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprint("on rank ", rank, ", new rank ", replaced, ", late ", late), func(t *testing.T) {
					inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
						f := newLife(t, l, 1)
						f.last, f.live[1] = 1, &living{}
						f.run(model.Step{Entries: []model.Entry{f.grow(1, 0, 6)}})
						f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 6)}, Entries: []model.Entry{f.grow(1, 0, 9)}})
						c.recovering = true
						ran := func(ctx context.Context, _ model.Step) error {
							c.hooks[rank].Store(nil)
							if late {
								synctest.Wait() // the others wait in the exchange
							}
							go func() {
								c.end(&distributed.PeerError{Rank: rank, Cause: "lost"})
								if replaced > 0 {
									c.replace(replaced)
								}
								require.NoError(t, c.form())
							}()
							<-ctx.Done()
							return context.Cause(ctx)
						}
						if late {
							ran = c.loseAfter(rank, replaced)
						}
						c.hooks[rank].Store(&ran)
						f.last = 3
						f.run(model.Step{
							Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 6, 14)},
							Forks:       []model.Fork{f.forkAt(2, 1, 6), f.forkAt(3, 1, 15)},
							Entries:     []model.Entry{f.grow(1, 0, 3), f.grow(2, 0, 4), f.grow(3, 1, 2)},
						})
						synctest.Wait()
						require.EqualValues(t, 2, c.epoch.Number)
						c.alike(l, 1, 2)
						require.Equal(t, map[model.SeqID][]int{1: {6, 14}, 2: {6}, 3: {6, 14}}, c.ranks[2].Model.Checkpoints())
						f.last = 5
						f.run(model.Step{
							Drop:    []model.SeqID{1},
							Forks:   []model.Fork{f.forkAt(4, 1, 14), f.forkAt(5, 3, 6)},
							Entries: []model.Entry{f.grow(4, 0, 1), f.grow(5, 0, 1)},
						})
						c.alike(l, 1, 2)
					})
				})
			}
		}
	}
}

// loseAfter returns a hook with which a rank finishes a step, and the epoch ends at once.
func (c *fakeCluster) loseAfter(rank, replaced int) func(context.Context, model.Step) error {
	return func(context.Context, model.Step) error {
		c.hooks[rank].Store(nil)
		go func() {
			c.end(&distributed.PeerError{Rank: rank, Cause: "lost"})
			if replaced > 0 {
				c.replace(replaced)
			}
			require.NoError(c.t, c.form())
		}()
		return nil
	}
}

// TestAJoinerForksFromOldCheckpoints: a rank that gets the sequences while it waits, or with
// the first work of its epoch, has all checkpoints: those taken before, during and after the
// copy. A checkpoint has more bytes than one message.
func TestAJoinerForksFromOldCheckpoints(t *testing.T) {
	for _, ahead := range []bool{true, false} {
		t.Run(fmt.Sprint("ahead ", ahead), func(t *testing.T) {
			inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
				c.each, c.big = bytesOfPosition, 5<<19
				for _, r := range c.ranks {
					r.each, r.big = c.each, c.big
				}
				c.enters(0, 1)
				f := newLife(t, l, 4)
				f.last, f.live[1], f.live[2] = 2, &living{}, &living{}
				grow := func(ids ...model.SeqID) (all []model.Entry) {
					for _, id := range ids {
						all = append(all, f.grow(id, 0, 20))
					}
					return all
				}
				f.run(model.Step{Entries: grow(1, 2)})
				f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 18, 20), f.checkpointsAt(2, 20)}, Entries: grow(1, 2)})
				f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 18, 20, 40)}, Entries: grow(1, 2)})
				f.last = 4
				if ahead {
					j := c.joins(2)
					require.False(t, j.passes(14))
					// The copied part of sequence 1 now has other checkpoints, and two forks exist.
					f.run(model.Step{
						Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 20, 40, 60), f.checkpointsAt(2, 20, 60)},
						Forks:       []model.Fork{f.forkAt(3, 1, 20), f.forkAt(4, 2, 58)}, Entries: grow(1, 3),
					})
					for !j.passes(3) {
						f.run(model.Step{Entries: []model.Entry{f.grow(4, 0, 1)}})
					}
					require.Greater(t, c.ranks[2].continued, 200)
				} else {
					f.run(model.Step{
						Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 20, 40, 60), f.checkpointsAt(2, 20, 60)},
						Forks:       []model.Fork{f.forkAt(3, 1, 20), f.forkAt(4, 2, 58)}, Entries: grow(1, 3),
					})
				}
				f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(3, 20, 39)}, Entries: grow(2)})
				c.enters(0, 1, 2)
				f.last = 9
				f.run(model.Step{
					Forks: []model.Fork{f.forkAt(5, 1, 20), f.forkAt(6, 1, 40), f.forkAt(7, 2, 60), f.forkAt(8, 3, 39), f.forkAt(9, 4, 20)},
					Drop:  []model.SeqID{1, 2, 3, 4}, Entries: []model.Entry{f.grow(5, 0, 3), f.grow(6, 0, 3), f.grow(7, 0, 3), f.grow(8, 0, 3), f.grow(9, 0, 3)},
				})
				c.alike(l, 1, 2)
				require.Equal(t, map[model.SeqID][]int{5: {20}, 6: {20, 40}, 7: {20, 60}, 8: {20, 39}, 9: {20}}, c.ranks[2].Model.Checkpoints())
				require.Equal(t, ahead, c.ranks[2].restored == 0)
			})
		})
	}
}

// TestForksOfLostSequences: a step that needs a sequence which its caller does not know to be
// lost is refused before it is sent.
func TestForksOfLostSequences(t *testing.T) {
	for name, s := range map[string]model.Step{
		"a fork":          {Forks: []model.Fork{{Seq: 2, From: 1, Length: 2}}, Entries: entry(2, 2, model.WantLast, 3).Entries},
		"a checkpoint":    {Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{2}}}},
		"no checkpoints":  {Checkpoints: []model.Checkpoints{{Seq: 1}}, Entries: entry(3, 0, model.WantLast, 3).Entries},
		"a continued one": entry(1, 2, model.WantLast, 3),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
				mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
				mustRun(t, l, model.Step{Checkpoints: []model.Checkpoints{{Seq: 1, At: []int{2}}}})
				require.Equal(t, l.SequenceBytes(2)+l.CheckpointBytes(), l.Held())
				c.end(errors.New("rank 1: gone"))
				_, err := l.Epoch()
				require.ErrorIs(t, err, model.ErrUnavailable)
				require.NoError(t, c.form())
				sent := len(c.sent)
				_, err = l.Forward(t.Context(), s)
				require.ErrorIs(t, err, model.ErrUnavailable)
				require.ErrorContains(t, err, "sequence 1 was lost with its epoch")
				require.Len(t, c.sent, sent)
				mustRun(t, l, entry(4, 0, model.WantLast, 3))
				mustRun(t, l, model.Step{Forks: []model.Fork{{Seq: 5, From: 4, Length: 1}}})
				c.alike(l, 1)
			})
		})
	}
}
