//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// fault is something that befalls a rank and how it passes.
type fault struct {
	name   string
	net    bool          // needs namespaces
	notice time.Duration // until every other rank knows
	strike func(b *bed, rank int) error
	mend   func(b *bed, rank int) error
}

func signals(s syscall.Signal) func(*bed, int) error {
	return func(b *bed, rank int) error {
		_, err := b.Signal(rank, s)
		return err
	}
}

// again starts a rank whose process has ended, or is about to.
func again(b *bed, rank int) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := b.Rank(rank).Wait(ctx); err != nil {
		return err
	}
	return b.Start(rank)
}

var faults = []fault{
	{"killed", false, noticeClosed, signals(syscall.SIGKILL), again},
	{"told to leave", false, noticeClosed, signals(syscall.SIGTERM), again},
	{"stopped, goes on after the deadline", false, noticeQuiet, signals(syscall.SIGSTOP), signals(syscall.SIGCONT)},
	{"cable pulled and put back", true, noticeQuiet,
		func(b *bed, rank int) error { return b.Net.Cut(rank) }, func(b *bed, rank int) error { return b.Net.Restore(rank) }},
	{"interface down and up", true, noticeQuiet,
		func(b *bed, rank int) error { return b.Net.Down(rank) }, func(b *bed, rank int) error { return b.Net.Up(rank) }},
}

// phase is what the cluster does when a fault strikes.
type phase struct {
	name     string
	question question // under way; none when idle
}

var phases = []phase{{"idle", question{}}, {"prefill", long}, {"decode", talk}}

// errEarly ends the wait for the sign of progress when the answer came first.
var errEarly = errors.New("the answer ended before the fault could strike")

// underWay is a request that was sent.
type underWay struct {
	answer *harness.Answer
	err    error
	done   chan struct{}
}

// begin sends the question of a phase and returns when the cluster is in the
// middle of it: a prefill has made steps and no token, an answer some tokens.
func (b *bed) begin(p phase) *underWay {
	b.t.Helper()
	if p.question == (question{}) {
		return nil
	}
	const steps = "ringmaster_engine_steps_total"
	before, err := b.Client.Metric(b.ctx, steps)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeoutCause(b.ctx, patience, fmt.Errorf("a request hangs"))
	b.t.Cleanup(cancel)
	r := p.question.request(b.t, b.Model)
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	talking := make(chan struct{})
	r.OnToken = func(n int) {
		if n == 3 {
			close(talking)
		}
	}
	u := &underWay{done: make(chan struct{})}
	go func() {
		defer close(u.done)
		u.answer, u.err = b.Client.Complete(ctx, r)
		stop(errEarly)
	}()
	if p.question == long {
		require.NoError(b.t, harness.Until(wait, "steps of the prefill", func() (bool, string) {
			n, err := b.Client.Metric(wait, steps)
			return err == nil && n >= before+3, fmt.Sprint(n, " steps, before ", before, " ", err)
		}), "%v", context.Cause(wait))
		return u
	}
	select {
	case <-talking:
	case <-wait.Done():
		require.NoError(b.t, context.Cause(wait))
	}
	return u
}

// names requires that a text tells which rank is at fault.
func names(t *testing.T, text string, rank int) {
	t.Helper()
	require.Regexp(t, fmt.Sprintf(`\brank %d\b`, rank), text)
}

// endure strikes a rank in a phase and requires all that was promised: whoever
// waits is told which rank it was, in time; the others stay up; the group forms
// again by itself; every token is right.
func (b *bed) endure(f fault, p phase, victim int) {
	t := b.t
	u := b.begin(p)
	at := time.Now()
	require.NoError(t, f.strike(b, victim))
	if u != nil {
		<-u.done
		require.NoError(t, u.err)
		require.NotNil(t, u.answer.Err, "the answer went on to its end, %d tokens, while rank %d was %s", len(u.answer.Tokens), victim, f.name)
		took := u.answer.Ended.Sub(at)
		t.Logf("told after %v and %d tokens (status %d): %s", took.Round(time.Millisecond), len(u.answer.Tokens), u.answer.Status, u.answer.Err.Message)
		names(t, u.answer.Err.Message, victim)
		require.Equal(t, "server_error", u.answer.Err.Type)
		if len(u.answer.Tokens) == 0 {
			require.Equal(t, http.StatusServiceUnavailable, u.answer.Status)
		}
		require.Less(t, took, f.notice+slack)
		b.prefix(u.answer, p.question)
	}
	ctx, cancel := context.WithTimeout(b.ctx, f.notice+slack)
	reason, err := b.UntilNotReady(ctx)
	cancel()
	require.NoError(t, err)
	if u == nil {
		t.Logf("not ready after %v: %s", time.Since(at).Round(time.Millisecond), reason)
	}
	names(t, reason, victim)
	b.refuses(victim)

	b.othersRun(victim)
	mended := time.Now()
	require.NoError(t, f.mend(b, victim))
	b.ready()
	t.Logf("serves again %v after", time.Since(mended).Round(time.Millisecond))
	b.right(brief)
	b.othersRun(victim)
}

// refuses requires that a request is refused at once, with the rank named.
func (b *bed) refuses(victim int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, noticeClosed+slack)
	defer cancel()
	a, err := b.Client.Complete(ctx, brief.request(b.t, b.Model))
	require.NoError(b.t, err)
	require.NotNil(b.t, a.Err)
	require.Equal(b.t, http.StatusServiceUnavailable, a.Status)
	names(b.t, a.Err.Message, victim)
}

// othersRun requires that no rank but one has ended.
func (b *bed) othersRun(victim int) {
	b.t.Helper()
	for r := range b.Size {
		if r != victim {
			require.True(b.t, b.Rank(r).Running(), "rank %d has ended", r)
		}
	}
}

// TestFaults: on loopback, whatever strikes one rank of a running cluster. One
// cluster takes all the faults one after the other: recovery must not wear out.
func TestFaults(t *testing.T) {
	lessPhases(t)
	for _, size := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: size, Model: model(t, slowModel), Flags: quick})
			require.NoError(t, b.Start(0))
			for r := size - 1; r > 0; r-- {
				require.NoError(t, b.Start(r))
			}
			b.ready()
			b.right(brief)
			b.storm(false)
		})
	}
}

// lessPhases reports the phases that storm leaves out.
func lessPhases(t *testing.T) {
	t.Helper()
	if testenv.Rest(t, testenv.Full, "each fault in a second phase") {
		testenv.Rest(t, testenv.Exhaustive, "each fault in every phase")
	}
}

// storm runs the faults of one kind through the phases.
func (b *bed) storm(net bool) {
	for i, f := range faults {
		if f.net != net {
			continue
		}
		for j, p := range phases {
			// A fault has one phase, or two in a full run.
			turn := (i + j + b.Size) % 3
			if turn == 0 && !testenv.At(testenv.Exhaustive) || turn == 1 && !testenv.At(testenv.Full) {
				continue
			}
			victim := 1 + (i+j)%(b.Size-1)
			good := b.t.Run(fmt.Sprintf("rank %d %s, %s", victim, f.name, p.name), func(t *testing.T) {
				b.on(t).endure(f, p, victim)
			})
			if !good {
				return // the cluster is in no state to go on
			}
		}
	}
}

// TestCutLinks: the same with hosts of their own, whose links break.
func TestCutLinks(t *testing.T) {
	lessPhases(t)
	for _, size := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: size, Model: model(t, slowModel), Net: network(t, size), Flags: quick})
			require.NoError(t, b.Start(slices.Collect(ranks(size))...))
			b.ready()
			b.right(brief)
			b.storm(true)
		})
	}
}

func ranks(size int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for r := range size {
			if !yield(r) {
				return
			}
		}
	}
}

// TestShortStop: a rank that stops for less than the deadline is waited for,
// and the answer is right.
func TestShortStop(t *testing.T) {
	t.Parallel()
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Flags: quick})
	require.NoError(t, b.Start(0, 1))
	b.ready()
	u := b.begin(phase{"decode", talk})
	_, err := b.Signal(1, syscall.SIGSTOP)
	require.NoError(t, err)
	pause := time.NewTimer(1500 * time.Millisecond)
	select {
	case <-pause.C:
	case <-u.done:
		t.Fatal("the answer ended while a rank stood still")
	}
	_, err = b.Signal(1, syscall.SIGCONT)
	require.NoError(t, err)
	<-u.done
	require.NoError(t, u.err)
	require.Nil(t, u.answer.Err, "%+v", u.answer.Err)
	require.Len(t, u.answer.Tokens, talk.tokens)
	b.prefix(u.answer, talk)
}

// TestLeaderLost: when rank 0 dies or stands still the others wait for it, and
// follow it again.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: quick})
	require.NoError(t, b.Start(0, 1, 2))
	b.ready()

	t.Run("killed", func(t *testing.T) {
		b := b.on(t)
		u := b.begin(phase{"decode", talk})
		_, err := b.Signal(0, syscall.SIGKILL)
		require.NoError(t, err)
		<-u.done
		require.Error(t, u.err)
		b.prefix(u.answer, talk)
		looking := regexp.MustCompile("looking for the leader")
		for r := 1; r < b.Size; r++ {
			_, err := b.Rank(r).Log.Wait(within(t, noticeClosed+slack), 0, looking)
			require.NoError(t, err, "rank %d", r)
		}
		require.NoError(t, again(b, 0))
		b.ready()
		b.right(brief)
		b.othersRun(0)
	})
	t.Run("stopped", func(t *testing.T) {
		b := b.on(t)
		u := b.begin(phase{"decode", talk})
		from := []int{0, b.Rank(1).Log.Len(), b.Rank(2).Log.Len()}
		_, err := b.Signal(0, syscall.SIGSTOP)
		require.NoError(t, err)
		for r := 1; r < b.Size; r++ {
			line, err := b.Rank(r).Log.Wait(within(t, noticeQuiet+slack), from[r], regexp.MustCompile("looking for the leader"))
			require.NoError(t, err, "rank %d", r)
			require.Contains(t, line, "no heartbeat")
		}
		_, err = b.Signal(0, syscall.SIGCONT)
		require.NoError(t, err)
		<-u.done
		require.NoError(t, u.err)
		b.prefix(u.answer, talk)
		b.ready()
		b.right(brief)
		b.othersRun(-1)
	})
}
