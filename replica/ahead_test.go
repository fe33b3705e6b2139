package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
)

// joining is a rank that waits to join the epoch of a fakeCluster, over a connection on
// which a payload passes when the test lets it.
type joining struct {
	c      *fakeCluster
	rank   int
	pass   chan struct{}
	lost   chan struct{}        // closed when it or the epoch is lost
	joined chan struct{}        // closed by Join
	change func(payload []byte) // on the way
	sent   int                  // bytes
	whose  map[model.SeqID]int  // payloads of each sequence
}

// joins makes a new process of a rank wait to join.
func (c *fakeCluster) joins(rank int) *joining {
	if old := c.workers[rank]; old != nil && c.loads[rank] > 0 {
		require.NoError(c.t, old.Close(context.Background()))
		c.behaved(rank)
	}
	c.workers[rank] = NewWorker(rank, hostOf(c.load))
	settings := encoded(c.t, c.settings)
	require.NoError(c.t, c.workers[rank].Form(c.t.Context(), settings))
	j := &joining{c: c, rank: rank, pass: make(chan struct{}), lost: make(chan struct{}), joined: make(chan struct{}), whose: map[model.SeqID]int{}}
	c.recruits <- &cluster.Recruit{Rank: rank, Send: j.send, Flush: func(context.Context) error { return nil }, Join: func() { close(j.joined) }}
	return j
}

func (j *joining) send(ctx context.Context, payload []byte) error {
	require.LessOrEqual(j.c.t, len(payload), 1<<20-12)
	select {
	case <-j.pass:
	case <-j.lost:
		return errors.New("the rank no longer waits")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.change != nil {
		j.change(payload)
	}
	if err := j.c.workers[j.rank].Ahead(payload); err != nil {
		return fmt.Errorf("%w: %w", cluster.ErrRefused, err)
	}
	j.sent += len(payload)
	if payload[1] == 1 {
		j.whose[model.SeqID(binary.LittleEndian.Uint32(payload[4:]))]++
	}
	return nil
}

// passes lets a number of payloads pass, or fewer if the copy ends, and reports whether the
// copy ended.
func (j *joining) passes(n int) (over bool) {
	for range n {
		select {
		case j.pass <- struct{}{}:
		case <-j.joined:
			return true
		}
	}
	synctest.Wait()
	select {
	case <-j.joined:
		return true
	default:
		return false
	}
}

// enters ends the epoch between two steps and forms the next with these members.
func (c *fakeCluster) enters(members ...int) {
	c.recovering = true
	c.end(&distributed.PeerError{Rank: -1, Cause: "a rank joins"})
	c.of(members...)
	require.NoError(c.t, c.form())
}

// alike requires that these ranks have the sequences of the leader, with their checkpoints,
// and that the leader knows both.
func (c *fakeCluster) alike(l *Leader, ranks ...int) {
	c.t.Helper()
	mustRun(c.t, l, model.Step{Drop: []model.SeqID{model.SeqID(1<<20 + l.lastSent)}}) // the others hear of the last commit
	synctest.Wait()
	require.Equal(c.t, c.ranks[0].Live(), l.tokens)
	var held int64
	for id, tokens := range l.tokens {
		held += l.SequenceBytes(len(tokens)) + l.CheckpointBytes()*int64(len(c.ranks[0].Checkpoints(id)))
	}
	require.Equal(c.t, held, l.Held())
	for _, r := range ranks {
		require.Equal(c.t, c.ranks[0].Live(), c.ranks[r].Live(), "rank %d", r)
		require.Equal(c.t, c.ranks[0].Model.Checkpoints(), c.ranks[r].Model.Checkpoints(), "rank %d", r)
	}
}

// bytesOfPosition makes a sequence of the tests below long enough for many pieces.
const bytesOfPosition = 100 << 10

// inGroupOf2 is a group of ranks 0 and 1 of three, with sequences.
func inGroupOf2(t *testing.T, seed uint64, test func(c *fakeCluster, l *Leader, f *life)) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.each = bytesOfPosition
		for _, r := range c.ranks {
			r.each = bytesOfPosition
		}
		c.enters(0, 1)
		f := newLife(t, l, seed)
		for range 12 {
			f.step(3, 12)
		}
		test(c, l, f)
	})
}

// TestAJoinerHasTheSequencesAhead: while a rank waits to join, and the sequences grow, are
// rewound, end and begin, they are copied to it in bounded pieces. In the first work of its
// epoch it gets only the rest of each sequence, and then has the same as the others.
func TestAJoinerHasTheSequencesAhead(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inGroupOf2(t, seed, func(c *fakeCluster, l *Leader, f *life) {
				j := c.joins(2)
				for steps := 0; !j.passes(3 + int(seed)%3*8); steps++ {
					require.Less(t, steps, 400, "it never has enough")
					f.step(3, 2)
				}
				f.calm = true // because a fork is more to send
				for id := range c.ranks[2].Live() {
					require.Contains(t, l.tokens, id, "it was freed")
				}
				ahead := c.ranks[2].continued
				require.Greater(t, ahead*bytesOfPosition, 2*aheadLeft)
				if seed%2 == 0 { // it does not join at once
					f.step(3, 2)
				}
				c.enters(0, 1, 2)
				f.step(3, 2)
				c.alike(l, 1, 2)
				require.Zero(t, c.ranks[2].restored)
				require.LessOrEqual(t, (c.ranks[2].continued-ahead)*bytesOfPosition, aheadLeft+20*bytesOfPosition)
				f.calm = false
				for range 20 {
					f.step(3, 2)
				}
				c.alike(l, 1, 2)
				require.Empty(t, l.copied)
			})
		})
	}
}

// TestAJoinThatNeverCatchesUp: if the sequences grow faster than they are copied, the rank
// still joins, and gets only the rest of each sequence.
func TestAJoinThatNeverCatchesUp(t *testing.T) {
	inGroupOf2(t, 8, func(c *fakeCluster, l *Leader, f *life) {
		const each = 4 * bytesOfPosition
		c.each = each
		for _, r := range c.ranks {
			r.each = each
		}
		j := c.joins(2)
		for copied := 0; !j.passes(aheadTurn / 4 / each); copied += aheadTurn / 4 {
			require.Less(t, copied, 2*aheadTries*aheadTurn, "it never joins")
			s := model.Step{}
			for id := range f.live {
				s.Entries = append(s.Entries, f.grow(id, 0, 10))
			}
			f.run(s)
		}
		require.Greater(t, j.sent, aheadTries/2*aheadTurn)
		c.enters(0, 1, 2)
		f.step(3, 2)
		c.alike(l, 1, 2)
		require.Zero(t, c.ranks[2].restored)
	})
}

// TestAJoinerUnderAFullBudget: while a rank waits to join, sequences and checkpoints make room
// for others, on this rank too.
func TestAJoinerUnderAFullBudget(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.settings.SequenceBudget = 2*(l.SequenceBytes(64)+l.CheckpointBytes()) + l.SequenceBytes(8)
		c.each = 4 * bytesOfPosition
		for _, r := range c.ranks {
			r.each = c.each
		}
		c.enters(0, 1)
		f := newLife(t, l, 9)
		f.guesses = nil // the budget has no room for them
		f.last, f.live[1], f.live[2] = 2, &living{}, &living{}
		f.run(model.Step{Entries: []model.Entry{f.grow(1, 0, 30), f.grow(2, 0, 30)}})
		f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(1, 30), f.checkpointsAt(2, 30)}, Entries: []model.Entry{f.grow(1, 0, 30), f.grow(2, 0, 30)}})
		j := c.joins(2)
		require.False(t, j.passes(100))
		f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(2)}, Drop: []model.SeqID{1}})
		f.last, f.live[3] = 3, &living{}
		f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(2, 60)}, Entries: []model.Entry{f.grow(3, 0, 40)}})
		f.run(model.Step{Checkpoints: []model.Checkpoints{f.checkpointsAt(3, 40)}, Entries: []model.Entry{f.grow(3, 0, 20)}})
		for !j.passes(10) {
			f.run(model.Step{Entries: []model.Entry{f.grow(3, 1, 1)}})
		}
		c.enters(0, 1, 2)
		f.run(model.Step{Entries: []model.Entry{f.grow(2, 0, 1), f.grow(3, 0, 1)}})
		c.alike(l, 1, 2)
		require.Zero(t, c.ranks[2].restored, "it was never beyond its budget")
	})
}

// TestTwoJoinAtOnce: the same for two ranks of different speed.
func TestTwoJoinAtOnce(t *testing.T) {
	inCluster(t, 4, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.each = bytesOfPosition
		for _, r := range c.ranks {
			r.each = bytesOfPosition
		}
		c.enters(0, 1)
		f := newLife(t, l, 3)
		for range 12 {
			f.step(3, 12)
		}
		two, three := c.joins(2), c.joins(3)
		for !two.passes(6) {
			three.passes(1)
			f.step(3, 2)
		}
		for !three.passes(9) {
			f.step(3, 1)
		}
		c.enters(0, 1, 2, 3)
		f.step(3, 2)
		c.alike(l, 1, 2, 3)
		require.Zero(t, c.ranks[2].restored+c.ranks[3].restored)
	})
}

// TestAJoinerIsLost: a rank that is lost during the copy of the sequences, or that becomes
// a member before it has them because another rank is lost, gets all of them.
func TestAJoinerIsLost(t *testing.T) {
	for _, again := range []bool{true, false} {
		t.Run(fmt.Sprint("a new process ", again), func(t *testing.T) {
			inGroupOf2(t, 5, func(c *fakeCluster, l *Leader, f *life) {
				j := c.joins(2)
				require.False(t, j.passes(5))
				f.step(3, 2)
				close(j.lost)
				<-j.joined
				members := []int{0, 2}
				if again {
					j = c.joins(2)
					require.False(t, j.passes(3))
					close(j.lost)
					<-j.joined
					members = []int{0, 1, 2}
				}
				c.enters(members...)
				f.step(3, 2)
				c.alike(l, members[1:]...)
				require.Positive(t, c.ranks[2].continued)
				for range 10 {
					f.step(3, 2)
				}
				c.alike(l, members[1:]...)
			})
		})
	}
}

// TestALeaderWithoutSequences: a leader without sequences sends none, and a rank refuses a
// piece of a copy that has not begun.
func TestALeaderWithoutSequences(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.enters(0, 1)
		j := c.joins(2)
		require.True(t, j.passes(2))
		stray := make([]byte, aheadHeader)
		stray[0], stray[1] = aheadFormat, 1
		require.ErrorContains(t, c.workers[2].Ahead(stray), "a copy that has not begun on this rank")
		require.ErrorContains(t, c.workers[2].Ahead([]byte{aheadFormat}), "malformed")
		require.NoError(t, c.workers[2].Ahead(aheadHead(aheadRestart, 0, 5)))
		require.ErrorContains(t, c.workers[2].Ahead(append(aheadHead(aheadList, 0, 5), 1)), "list of the leader's sequences: it is truncated")
		require.Nil(t, c.workers[2].took)
		require.NoError(t, c.workers[2].Ahead(aheadHead(aheadRestart, 0, 5)))
		require.NoError(t, c.workers[2].Ahead(append(aheadHead(aheadPart, 1, 5), "RMSNAP01"...)))
		require.ErrorContains(t, c.workers[2].Ahead(aheadHead(aheadList, 0, 5)), "a list of sequences within a piece of sequence 1")
		c.enters(0, 1, 2)
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
		mustRun(t, l, entry(1, 2, model.WantLast, 3))
		c.alike(l, 1, 2)
	})
}

// TestADamagedPieceIsRefused: the rank names the damaged piece and gets complete sequences
// when it joins. The same holds if it refuses what follows the pieces in the first work of
// its epoch.
func TestADamagedPieceIsRefused(t *testing.T) {
	t.Run("ahead", func(t *testing.T) {
		inGroupOf2(t, 6, func(c *fakeCluster, l *Leader, f *life) {
			j := c.joins(2)
			require.False(t, j.passes(4))
			j.change = func(payload []byte) { payload[len(payload)-100] ^= 8 }
			require.True(t, j.passes(2))
			require.Empty(t, c.ranks[2].Live(), "nothing is left of it")
			j.change = nil
			c.enters(0, 1, 2)
			f.step(3, 2)
			c.alike(l, 1, 2)
			require.Positive(t, c.ranks[2].restored, "as a whole")
		})
	})
	t.Run("in the first work", func(t *testing.T) {
		inGroupOf2(t, 7, func(c *fakeCluster, l *Leader, f *life) {
			j := c.joins(2)
			for !j.passes(20) {
				f.step(3, 2)
			}
			f.step(3, 2)
			refuse, n := errors.New("it is foreign"), 0
			c.ranks[2].onRestoreFrom = func(model.SeqID) error {
				if n++; n == 2 {
					return refuse
				}
				return nil
			}
			all := len(l.tokens)
			c.enters(0, 1, 2)
			f.step(3, 2)
			c.alike(l, 1, 2)
			require.Equal(t, 2, n)
			require.Equal(t, all, c.ranks[2].restored, "all of them came as a whole")
		})
	})
}
