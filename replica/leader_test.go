package replica

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/parallel"
)

// These tests run in bubbles of testing/synctest, so that an endless wait or a goroutine that
// outlives the test fails it.

func entry(seq model.SeqID, pos int, want model.Want, tokens ...int32) model.Step {
	return model.Step{Entries: []model.Entry{{Seq: seq, Pos: pos, Tokens: tokens, Want: want}}}
}

// mustRun runs a step and commits it.
func mustRun(t *testing.T, l *Leader, s model.Step) [][]float32 {
	t.Helper()
	rows, err := l.Forward(t.Context(), s)
	require.NoError(t, err)
	l.Commit(s)
	return rows
}

// forwarding begins a step that waits; its error follows in the channel.
func forwarding(ctx context.Context, l *Leader, s model.Step) <-chan error {
	ended := make(chan error)
	go func() {
		_, err := l.Forward(ctx, s)
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// inCluster runs a test with a cluster of the given number of ranks.
func inCluster(t *testing.T, size int, test func(t *testing.T, c *fakeCluster, l *Leader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, l := newCluster(t, size)
		test(t, c, l)
		c.stop(l)
	})
}

// committed returns the steps that a rank has committed, without wants.
func (c *fakeCluster) committed(rank int) []model.Step {
	var out []model.Step
	for _, s := range c.ranks[rank].Steps() {
		out = append(out, withoutWant(s))
	}
	return out
}

func TestFollowersCommitWhatTheLeaderDid(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		first := entry(1, 0, model.WantLast, 1, 2, 3)
		require.Len(t, mustRun(t, l, first), 1)
		require.Equal(t, 3, l.Len(1))

		// A step that is abandoned twice, then another in its place.
		for range 2 {
			rows, err := l.Forward(t.Context(), entry(1, 3, model.WantAll, 4, 5))
			require.NoError(t, err)
			require.Len(t, rows, 2)
		}
		require.Equal(t, 3, l.Len(1))
		second := entry(1, 3, model.WantLast, 6)
		mustRun(t, l, second)
		third := model.Step{Drop: []model.SeqID{1}}
		mustRun(t, l, third)
		require.Zero(t, l.Len(1))
		fourth := entry(2, 0, model.WantNone, 9)
		mustRun(t, l, fourth)

		synctest.Wait()
		all := []model.Step{withoutWant(first), withoutWant(second), third, fourth}
		require.Equal(t, all, c.committed(0))
		for rank := 1; rank < 3; rank++ {
			require.Equal(t, all[:3], c.committed(rank), "the last commit is told with the next step")
			require.Equal(t, c.ranks[0].wants, c.ranks[rank].wants, "every rank may compute some rows of the output head")
			require.Equal(t, entry(1, 3, model.WantAll, 4, 5), c.ranks[rank].prepared[1])
		}
	})
}

func TestNoMemoryOfTheLeaderSendsNothing(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		first := entry(1, 0, model.WantLast, 1)
		mustRun(t, l, first)
		full := &model.MemoryError{Seq: 2}
		c.ranks[0].onPrepare = func(model.Step) error { return full }
		_, err := l.Forward(t.Context(), entry(2, 0, model.WantLast, 1))
		require.ErrorIs(t, err, model.ErrNoMemory)
		require.NotErrorIs(t, err, model.ErrUnavailable)
		l.Commit(entry(2, 0, model.WantLast, 1)) // of nothing: does nothing
		require.Zero(t, l.Len(2))
		require.Len(t, c.sent, 1)

		c.ranks[0].onPrepare = nil
		mustRun(t, l, model.Step{Drop: []model.SeqID{1}})
		_, err = l.Epoch()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []model.Step{withoutWant(first)}, c.committed(1), "the commit owed before is told")
	})
}

// wantVerdict checks an error of Forward that ends the epoch, and what Epoch then returns.
func wantVerdict(t *testing.T, l *Leader, err error, verdict string) {
	t.Helper()
	require.ErrorIs(t, err, model.ErrUnavailable)
	require.Equal(t, verdict, err.Error())
	_, err = l.Epoch()
	require.ErrorIs(t, err, model.ErrUnavailable)
	require.Equal(t, verdict, err.Error())
}

func TestAFollowersErrorEndsTheEpoch(t *testing.T) {
	broken := errors.New("no memory for sequence 1")
	for name, set := range map[string]func(r *fakeRank){
		"prepare": func(r *fakeRank) { r.onPrepare = func(model.Step) error { return broken } },
		"forward": func(r *fakeRank) { r.onForward = func(context.Context, model.Step) error { return broken } },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
				mustRun(t, l, entry(1, 0, model.WantLast, 1, 2))
				synctest.Wait()
				set(c.ranks[2])
				_, err := l.Forward(t.Context(), entry(1, 2, model.WantLast, 3))
				wantVerdict(t, l, err, "rank 2 at 10.0.0.2:7: no memory for sequence 1")
				var peer *distributed.PeerError
				require.ErrorAs(t, err, &peer)
				require.Equal(t, 2, peer.Rank)
				require.Zero(t, l.Len(1))

				// The next epoch: sequences are lost, new ones run.
				c.ranks[2].onPrepare, c.ranks[2].onForward = nil, nil
				_, err = l.Forward(t.Context(), entry(2, 0, model.WantLast, 3))
				require.ErrorIs(t, err, model.ErrUnavailable, "no epoch runs")
				require.NoError(t, c.form())
				n, err := l.Epoch()
				require.NoError(t, err)
				require.EqualValues(t, 1, n, "sequences were lost once")
				sent := len(c.sent)
				_, err = l.Forward(t.Context(), entry(1, 2, model.WantLast, 3))
				require.ErrorIs(t, err, model.ErrUnavailable)
				require.ErrorContains(t, err, "sequence 1 was lost with its epoch")
				require.Len(t, c.sent, sent, "it was not sent")
				mustRun(t, l, entry(2, 0, model.WantLast, 3))
				mustRun(t, l, entry(2, 1, model.WantLast, 4))
				require.Equal(t, 2, l.Len(2))
				require.Equal(t, []int{1, 1, 1}, c.loads, "the models are kept")
			})
		})
	}
}

func TestAnErrorOfTheLeaderEndsTheEpoch(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.ranks[0].onForward = func(context.Context, model.Step) error { return errors.New("layer 3: a kernel failed") }
		s := entry(1, 0, model.WantLast, 1)
		_, err := l.Forward(t.Context(), s)
		wantVerdict(t, l, err, "rank 0: layer 3: a kernel failed")
		l.Commit(s)
		require.Zero(t, l.Len(1))
	})
}

func TestAWrongStepIsNotSent(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		_, err := l.Forward(t.Context(), model.Step{Entries: []model.Entry{{Seq: 1}}})
		require.ErrorContains(t, err, "sequence 1 with 0 tokens")
		require.NotErrorIs(t, err, model.ErrUnavailable)
		require.Empty(t, c.sent)
	})
}

func TestACancelledRequestDoesNotEndAStep(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		ctx, cancel := context.WithCancel(t.Context())
		c.ranks[0].onForward = func(step context.Context, _ model.Step) error {
			cancel()
			return step.Err()
		}
		s := entry(1, 0, model.WantLast, 1)
		rows, err := l.Forward(ctx, s)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		_, err = l.Forward(ctx, s)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, model.ErrUnavailable)
		require.Len(t, c.sent, 1, "a step cancelled before it began is not sent")
		_, err = l.Epoch()
		require.NoError(t, err)
	})
}

// TestALostRankEndsAWaitingStep: whatever the leader waits for.
func TestALostRankEndsAWaitingStep(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		c.ranks[1].onForward = func(ctx context.Context, _ model.Step) error {
			<-ctx.Done() // a machine that stands still
			return context.Cause(ctx)
		}
		ended := forwarding(t.Context(), l, entry(1, 0, model.WantLast, 1)) // rank 0 waits in the barrier
		c.end(&distributed.PeerError{Rank: 1, Addr: "10.0.0.1:5", Cause: "no heartbeat for 4s"})
		wantVerdict(t, l, <-ended, "rank 1 at 10.0.0.1:5: no heartbeat for 4s")
	})
}

func TestDigestsThatDiffer(t *testing.T) {
	for flip, where := range []string{"layer 0, choice of experts", "layer 1, choice of experts", "final hidden state"} {
		inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
			c.ranks[2].flip = flip
			s := entry(1, 0, model.WantLast, 1)
			_, err := l.Forward(t.Context(), s)
			if err == nil { // else the followers were quicker
				l.Commit(s)
				synctest.Wait()
				_, err = l.Forward(t.Context(), entry(1, 1, model.WantLast, 1))
			}
			wantVerdict(t, l, err, "rank 2: differs from rank 0 at "+where)
		})
	}
}

// TestStartWaitsForTheStepBefore: the leader's model joins another group only after the step
// of the old epoch has ended.
func TestStartWaitsForTheStepBefore(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		deaf := make(chan struct{})
		c.ranks[0].onForward = func(context.Context, model.Step) error {
			<-deaf
			return nil
		}
		ended, formed := forwarding(t.Context(), l, entry(1, 0, model.WantLast, 1)), make(chan error)
		c.end(errors.New("rank 1: gone"))
		go func() { formed <- c.form() }()
		synctest.Wait()
		require.Equal(t, 1, c.ranks[0].joins)
		_, err := l.Epoch()
		require.ErrorIs(t, err, model.ErrUnavailable)
		close(deaf)
		if err = <-ended; err != nil { // else the next epoch had formed before, and has run the step
			require.ErrorIs(t, err, model.ErrUnavailable)
			require.EqualError(t, err, "rank 1: gone")
		}
		require.NoError(t, <-formed)
		require.Equal(t, 2, c.ranks[0].joins)
		c.ranks[0].onForward = nil
		mustRun(t, l, entry(2, 0, model.WantLast, 1))
	})
}

func TestFormIsGivenUpWhileAStepRuns(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *fakeCluster, l *Leader) {
		deaf := make(chan struct{})
		c.ranks[0].onForward = func(context.Context, model.Step) error {
			<-deaf
			return nil
		}
		ended := forwarding(t.Context(), l, entry(1, 0, model.WantLast, 1))
		settings := encoded(t, c.settings)
		gone := errors.New("rank 2: gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		require.ErrorIs(t, c.program.Form(ctx, settings), gone)
		require.ErrorContains(t, l.Close(), "a step is still running")
		close(deaf)
		require.NoError(t, <-ended)
	})
}

func TestModelsAreKeptUnlessThePlanNeedsAnother(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		again := func(change func(s *Settings)) error {
			c.end(errors.New("gone"))
			change(&c.settings)
			return c.form()
		}
		info := l.Info()
		require.Equal(t, 64, info.MaxTokens)
		require.NoError(t, again(func(s *Settings) { s.Placement = upTo(2, 8) }))
		require.Equal(t, []int{1, 1}, c.loads)
		require.Equal(t, upTo(2, 8), c.ranks[1].placement)

		old := c.ranks[1]
		require.NoError(t, again(func(s *Settings) { s.Reduce = parallel.Exact }))
		require.Equal(t, []int{2, 2}, c.loads)
		require.Equal(t, parallel.Exact, c.ranks[1].settings.Reduce)
		require.ErrorContains(t, old.Close(), "closed twice")
		mustRun(t, l, entry(1, 0, model.WantLast, 1))

		require.ErrorContains(t, again(func(s *Settings) { s.MaxTokens = 32 }), "restart the program")
		require.Equal(t, info, l.Info())
		require.NoError(t, again(func(s *Settings) { s.MaxTokens = 64 }))
		mustRun(t, l, entry(2, 0, model.WantLast, 1))

		require.ErrorContains(t, again(func(s *Settings) { s.Placement = s.Placement[:1] }), "places the model on 1 ranks, but the group has 2")
	})
}

func TestReports(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
		mustRun(t, l, entry(1, 0, model.WantLast, 1, 2, 3))
		mustRun(t, l, entry(1, 3, model.WantLast, 4))
		synctest.Wait()
		reports, err := l.Reports(t.Context())
		require.NoError(t, err)
		require.Len(t, reports, 3)
		for i, r := range reports {
			require.Equal(t, i, r.Rank)
			require.EqualValues(t, 1, r.Epoch)
			require.EqualValues(t, 2, r.Steps)
			require.EqualValues(t, 4, r.Tokens)
			beginning := 2 * answerBytes // to each of the others
			if i == 0 {
				beginning += 2 * (8 + 8) // all sequences are to come, and there are none
			}
			require.EqualValues(t, 2*2*(i+1)+beginning, r.Group.Sent, "two steps, two other ranks")
			require.Len(t, r.Layers, 2)
			require.EqualValues(t, 61e9, r.Total().Compute)
			require.EqualValues(t, i, r.Total().Sent)
		}
	})
}

// TestReportsAreBounded: reports become series of metrics, so a report that no rank with this
// model can make is left out and named, and the others are kept.
func TestReportsAreBounded(t *testing.T) {
	long := func(n int, element string) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	for name, report := range map[string]string{
		"layers":                  `{"rank":1,"epoch":1,"layers":` + long(250000, "{}") + `}`,
		"a layer too many":        `{"rank":1,"epoch":1,"layers":` + long(3, "{}") + `}`,
		"exchanges of layers":     `{"rank":1,"epoch":1,"exchanges":` + long(4, "[]") + `}`,
		"another purpose":         `{"rank":1,"epoch":1,"exchanges":[[{"purpose":"x","op":"all-reduce"}]]}`,
		"another collective":      `{"rank":1,"epoch":1,"exchanges":[[{"purpose":"experts","op":"x"}]]}`,
		"the same again":          `{"rank":1,"epoch":1,"exchanges":[` + long(21, `{"purpose":"experts","op":"all-reduce"}`) + `]}`,
		"a negative time":         `{"rank":1,"epoch":1,"time":-1}`,
		"a layer's negative time": `{"rank":1,"epoch":1,"layers":[{"Wire":-1},{}]}`,
		"an exchange's":           `{"rank":1,"epoch":1,"exchanges":[[{"purpose":"experts","op":"gather","wire":-5}]]}`,
		"negative memory":         `{"rank":1,"epoch":1,"memory":-1}`,
		"another rank":            `{"rank":2,"epoch":1}`,
		"no JSON":                 `}{`,
	} {
		inCluster(t, 3, func(t *testing.T, c *fakeCluster, l *Leader) {
			mustRun(t, l, entry(1, 0, model.WantLast, 1, 2, 3))
			synctest.Wait()
			c.reports = map[int][]byte{1: []byte(report)}
			reports, err := l.Reports(t.Context())
			require.ErrorContains(t, err, "report of rank 1", name)
			require.Less(t, len(err.Error()), 200, name)
			require.Len(t, reports, 3)
			require.Equal(t, Report{Rank: 1}, reports[1], name)
			for _, i := range []int{0, 2} {
				require.EqualValues(t, 1, reports[i].Steps, name)
			}
		})
	}
}

func TestCloseIsFinal(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *fakeCluster, l *Leader) {
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		_, err := l.Forward(t.Context(), entry(1, 0, model.WantLast, 1))
		require.ErrorIs(t, err, model.ErrUnavailable)
		settings := encoded(t, c.settings)
		require.ErrorIs(t, c.program.Form(t.Context(), settings), distributed.ErrClosed)
		e, err := c.Epoch()
		require.NoError(t, err)
		require.ErrorIs(t, c.program.Start(e), distributed.ErrClosed)
	})
}
