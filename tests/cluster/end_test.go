//go:build unix

package cluster

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// allGone waits until every rank has exited, and requires that no process and no listener is left.
func (b *bed) allGone(at time.Time, listeners ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	defer cancel()
	for r := range b.Size {
		code, err := b.Rank(r).Wait(ctx)
		require.NoError(b.t, err, "rank %d", r)
		if b.formed {
			require.Zero(b.t, code, "rank %d exited with an error:\n%s", r, b.Rank(r).Log)
		}
		require.True(b.t, b.Rank(r).GroupGone(), "rank %d left processes", r)
	}
	logTime(b.t, "all gone", stopAll, time.Since(at))
	for _, addr := range append(listeners, b.Coordinator, b.HTTP) {
		l, err := net.Listen("tcp", addr)
		require.NoError(b.t, err, "%s is still in use", addr)
		require.NoError(b.t, l.Close())
	}
}

// TestCtrlC checks that an interrupt at any rank in any phase stops all ranks.
func TestCtrlC(t *testing.T) {
	type end struct {
		rank int
		p    phase
	}
	ends := []end{{1, phases[2]}}
	if testenv.Rest(t, testenv.Full, "an interrupt of the leader and of an idle rank") {
		ends = append(ends, end{0, phases[1]}, end{0, phases[0]}, end{2, phases[0]})
	}
	if testenv.Rest(t, testenv.Exhaustive, "an interrupt of every rank in every phase") {
		ends = ends[:0]
		for r := range 3 {
			for _, p := range phases {
				ends = append(ends, end{r, p})
			}
		}
	}
	for _, e := range ends {
		t.Run(fmt.Sprintf("rank %d, %s", e.rank, e.p.name), func(t *testing.T) {
			t.Parallel()
			b := formed(t, harness.Options{Size: 3, Model: model(t, slowModel)})
			data := []string{b.dataAddr(0), b.dataAddr(1), b.dataAddr(2)}
			u := b.begin(e.p)
			at := b.signal(e.rank, syscall.SIGINT)
			b.allGone(at, data...)
			if u != nil {
				<-u.done
				require.NotNil(t, u.answer)
				require.True(t, u.err != nil || u.answer.Err != nil, "the answer was completed")
				b.requirePrefix(u.answer, e.p.question)
			}
		})
	}
}

// TestCtrlCWhileForming does the same before the group is complete.
func TestCtrlCWhileForming(t *testing.T) {
	for rank := range 2 {
		t.Run(fmt.Sprintf("rank %d", rank), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel)})
			require.NoError(t, b.Start(0, 1))
			b.waitLog(1, 0, joined)
			b.Size = 2 // the third is never started
			at := b.signal(rank, syscall.SIGINT)
			b.allGone(at)
		})
	}
	t.Run("looking for the leader", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
		require.NoError(t, b.Start(1))
		b.waitLog(1, 0, looking)
		at := b.signal(1, syscall.SIGINT)
		exitCode(t, b.Rank(1))
		t.Logf("gone after %v", time.Since(at).Round(time.Millisecond))
	})
}

// TestTerminateLeader checks that SIGTERM at rank 0, as a supervisor sends it,
// stops all ranks too, and that a pending request gets an error.
func TestTerminateLeader(t *testing.T) {
	testenv.Need(t, testenv.Full, "a leader that is terminated")
	t.Parallel()
	b := formed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
	u := b.begin(phases[2])
	b.signal(0, syscall.SIGTERM)
	<-u.done
	require.NoError(t, u.err)
	b.requirePrefix(u.answer, phases[2].question)
	require.NotNil(t, u.answer.Err)
	t.Logf("%d tokens received: %s", len(u.answer.Tokens), u.answer.Err.Message)
	for r := range 2 {
		exitCode(t, b.Rank(r))
	}
	require.Regexp(t, regexp.MustCompile("the group has ended"), b.Rank(1).Log.String())
}
