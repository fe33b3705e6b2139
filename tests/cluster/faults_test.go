//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// fault is a fault of one rank and its repair.
type fault struct {
	name   string
	net    bool          // needs network namespaces
	detect time.Duration // until every other rank knows
	inject func(b *bed, rank int)
	repair func(b *bed, rank int)
}

func signals(s syscall.Signal) func(*bed, int) {
	return func(b *bed, rank int) { b.signal(rank, s) }
}

// cabling does something to the cable of a rank.
func cabling(do func(n *harness.Net, rank int) error) func(*bed, int) {
	return func(b *bed, rank int) { require.NoError(b.t, do(b.Net, rank)) }
}

var faults = []fault{
	{"killed", false, detectClosed, signals(syscall.SIGKILL), (*bed).restart},
	{"terminated", false, detectClosed, signals(syscall.SIGTERM), (*bed).restart},
	{"stopped, continued after the timeout", false, detectSilent, signals(syscall.SIGSTOP), signals(syscall.SIGCONT)},
	{"cable pulled and replugged", true, detectSilent, cabling((*harness.Net).Cut), cabling((*harness.Net).Restore)},
	{"interface down and up", true, detectSilent, cabling((*harness.Net).Down), cabling((*harness.Net).Up)},
}

// phase is what the cluster is doing when a fault is injected.
type phase struct {
	name     string
	question question // in progress; the zero value when idle
}

var phases = []phase{{"idle", question{}}, {"prefill", longPrompt}, {"decode", longAnswer}}

// errEarly ends the wait for progress if the answer ends first.
var errEarly = errors.New("the answer ended before the fault could be injected")

// pendingRequest is a request that has been sent.
type pendingRequest struct {
	answer *harness.Answer
	err    error
	done   chan struct{}
}

// begin sends the question of a phase and returns when the cluster is in the
// middle of it: after some steps of the prefill, or after some tokens of the answer.
// It returns nil for the idle phase.
func (b *bed) begin(p phase) *pendingRequest {
	b.t.Helper()
	if p.question == (question{}) {
		return nil
	}
	const steps = "ringmaster_engine_steps_total"
	before, err := b.Client.Metric(b.ctx, steps)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeoutCause(b.ctx, hangLimit, fmt.Errorf("a request hangs"))
	b.t.Cleanup(cancel)
	r := p.question.request(b.t, b.Model)
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	decoding := make(chan struct{})
	r.OnToken = func(n int) {
		if n == 3 {
			close(decoding)
		}
	}
	u := &pendingRequest{done: make(chan struct{})}
	go func() {
		defer close(u.done)
		u.answer, u.err = b.Client.Complete(ctx, r)
		stop(errEarly)
	}()
	if p.question == longPrompt {
		require.NoError(b.t, harness.Until(wait, "steps of the prefill", func() (bool, string) {
			n, err := b.Client.Metric(wait, steps)
			return err == nil && n >= before+3, fmt.Sprint(n, " steps, before ", before, " ", err)
		}), "%v", context.Cause(wait))
		return u
	}
	select {
	case <-decoding:
	case <-wait.Done():
		require.NoError(b.t, context.Cause(wait))
	}
	return u
}

// requireRank requires that a text names the rank at fault.
func requireRank(t *testing.T, text string, rank int) {
	t.Helper()
	require.Regexp(t, fmt.Sprintf(`\brank %d\b`, rank), text)
}

// survive injects a fault in a phase and requires what the documentation promises: pending
// and new requests fail in time with the name of the rank; the others stay up; after the
// repair the group forms again by itself; every token is right.
func (b *bed) survive(f fault, p phase, victim int) {
	t := b.t
	u := b.begin(p)
	at := time.Now()
	f.inject(b, victim)
	if u != nil {
		<-u.done
		require.NoError(t, u.err)
		require.NotNil(t, u.answer.Err, "the answer was completed, %d tokens, in spite of the fault %q of rank %d", len(u.answer.Tokens), f.name, victim)
		took := u.answer.Ended.Sub(at)
		t.Logf("reported after %v and %d tokens (status %d): %s", took.Round(time.Millisecond), len(u.answer.Tokens), u.answer.Status, u.answer.Err.Message)
		requireRank(t, u.answer.Err.Message, victim)
		require.Equal(t, "server_error", u.answer.Err.Type)
		if len(u.answer.Tokens) == 0 {
			require.Equal(t, http.StatusServiceUnavailable, u.answer.Status)
		}
		requireDetected(t, u.answer.Err.Message, f.detect, took)
		b.requirePrefix(u.answer, p.question)
	}
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	reason, err := b.UntilNotReady(ctx)
	cancel()
	require.NoError(t, err)
	if u == nil {
		t.Logf("not ready: %s", reason)
		requireDetected(t, reason, f.detect, time.Since(at))
	}
	requireRank(t, reason, victim)
	b.requireUnavailable(victim)

	b.othersRun(victim)
	repaired := time.Now()
	f.repair(b, victim)
	b.ready()
	t.Logf("serving again %v after the repair", time.Since(repaired).Round(time.Millisecond))
	b.requireAnswer(brief)
	b.othersRun(victim)
}

// requireUnavailable requires that a new request fails, and names the rank.
func (b *bed) requireUnavailable(victim int) {
	b.t.Helper()
	a := b.complete(brief)
	require.NotNil(b.t, a.Err)
	require.Equal(b.t, http.StatusServiceUnavailable, a.Status)
	requireRank(b.t, a.Err.Message, victim)
}

// othersRun requires that no rank except victim has exited; -1 allows none.
func (b *bed) othersRun(victim int) {
	b.t.Helper()
	for r := range b.Size {
		if r != victim {
			require.True(b.t, b.Rank(r).Running(), "rank %d has exited", r)
		}
	}
}

// TestFaults injects the faults that need no network namespaces. One cluster
// suffers them all in sequence, because recovery must work any number of times.
func TestFaults(t *testing.T) {
	lessPhases(t)
	for _, size := range sizes(t) {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: size, Model: model(t, slowModel), Flags: waits})
			require.NoError(t, b.Start(0))
			for r := size - 1; r > 0; r-- {
				require.NoError(t, b.Start(r))
			}
			b.ready()
			b.requireAnswer(brief)
			b.runFaults(false)
		})
	}
}

// lessPhases returns the phases that runFaults leaves out.
func lessPhases(t *testing.T) {
	t.Helper()
	if testenv.Rest(t, testenv.Full, "each fault in a second phase") {
		testenv.Rest(t, testenv.Exhaustive, "each fault in every phase")
	}
}

// sizes are the numbers of ranks of clusters that faults are injected into.
func sizes(t *testing.T) []int {
	if testenv.Rest(t, testenv.Full, "clusters of two ranks") {
		return []int{2, 3}
	}
	return []int{3}
}

// runFaults injects the faults with or without network namespaces in the phases.
func (b *bed) runFaults(net bool) {
	for i, f := range faults {
		if f.net != net || f.name == "interface down and up" && !testenv.At(testenv.Full) {
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
				b.on(t).survive(f, p, victim)
			})
			if !good {
				return // the cluster is in an unknown state
			}
		}
	}
}

// TestCutLinks injects the faults of links between ranks in network namespaces.
func TestCutLinks(t *testing.T) {
	testenv.Rest(t, testenv.Full, "an interface that goes down and comes up")
	lessPhases(t)
	for _, size := range sizes(t) {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			t.Parallel()
			b := formed(t, harness.Options{Size: size, Model: model(t, slowModel), Net: network(t, size), Flags: waits})
			b.requireAnswer(brief)
			b.runFaults(true)
		})
	}
}

// TestShortStop checks that the others wait for a rank that stops for less than the
// timeout, and that the answer is right.
func TestShortStop(t *testing.T) {
	testenv.Need(t, testenv.Full, "a short stop")
	t.Parallel()
	b := formed(t, harness.Options{Size: 2, Model: model(t, slowModel), Flags: waits})
	u := b.begin(phase{"decode", longAnswer})
	b.signal(1, syscall.SIGSTOP)
	pause := time.NewTimer(1500 * time.Millisecond)
	select {
	case <-pause.C:
	case <-u.done:
		t.Fatal("the answer ended while a rank was stopped")
	}
	b.signal(1, syscall.SIGCONT)
	b.requireWhole(u, longAnswer)
}

// TestLeaderLost checks that the others wait for rank 0 when it dies or stops, and
// follow it again.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	b := formed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: waits})

	t.Run("killed", func(t *testing.T) {
		b := b.on(t)
		u := b.begin(phase{"decode", longAnswer})
		b.signal(0, syscall.SIGKILL)
		<-u.done
		require.Error(t, u.err)
		b.requirePrefix(u.answer, longAnswer)
		for r := 1; r < b.Size; r++ {
			b.waitLog(r, 0, looking)
		}
		b.restart(0)
		b.ready()
		b.requireAnswer(brief)
		b.othersRun(0)
	})
	t.Run("restarted with another context", func(t *testing.T) {
		testenv.Need(t, testenv.Full, "a leader restarted with another context")
		b := b.on(t)
		b.signal(0, syscall.SIGKILL)
		b.RankFlags = map[int][]string{0: {"--ctx", "2048"}}
		b.restart(0)
		b.ready()
		b.requireAnswer(brief)
		b.othersRun(0)
	})
	t.Run("stopped", func(t *testing.T) {
		testenv.Need(t, testenv.Full, "a leader that is stopped for a while")
		b := b.on(t)
		u := b.begin(phase{"decode", longAnswer})
		from := []int{0, b.Rank(1).Log.Len(), b.Rank(2).Log.Len()}
		b.signal(0, syscall.SIGSTOP)
		for r := 1; r < b.Size; r++ {
			line := b.waitLog(r, from[r], "looking for the leader")
			require.Contains(t, line, "no heartbeat")
		}
		b.signal(0, syscall.SIGCONT)
		<-u.done
		require.NoError(t, u.err)
		b.requirePrefix(u.answer, longAnswer)
		b.ready()
		b.requireAnswer(brief)
		b.othersRun(-1)
	})
}

// TestLeaderSlept: rank 0 stops three times for longer than the others wait for it. None of
// them is excluded, because it is not their fault.
func TestLeaderSlept(t *testing.T) {
	testenv.Need(t, testenv.Full, "a leader that sleeps three times")
	t.Parallel()
	b := formed(t, harness.Options{Size: 2, Flags: []string{"--on-loss", "continue", "--peer-timeout", "2s"}})
	for range 3 {
		from := b.Rank(1).Log.Len()
		b.signal(0, syscall.SIGSTOP)
		b.waitLog(1, from, "looking for the leader.*no heartbeat")
		from = b.Rank(0).Log.Len()
		b.signal(0, syscall.SIGCONT)
		b.waitLog(0, from, named(0)+` did not run for \d`)
		b.waitLog(0, from, `the group is running.* ranks=2|stays out`)
		require.NotContains(t, b.Rank(0).Log.String(), "stays out")
	}
}
