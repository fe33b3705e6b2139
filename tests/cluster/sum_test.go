//go:build unix

package cluster

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestSumRepeats checks that with --reduce sum a cluster of the same size gives the
// same bits in every epoch, and before a fault too.
func TestSumRepeats(t *testing.T) {
	testenv.Need(t, testenv.Full, "--reduce sum in two epochs of three ranks")
	t.Parallel()
	b := formed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: []string{"--reduce", "sum", "--on-loss", "wait"}})
	ask := func() *harness.Answer {
		a := b.complete(longAnswer)
		require.Nil(t, a.Err, "%+v", a.Err)
		require.Len(t, a.Tokens, longAnswer.tokens)
		return a
	}
	first := ask()

	u := b.begin(phase{"decode", longAnswer})
	b.signal(2, syscall.SIGKILL)
	<-u.done
	require.NoError(t, u.err)
	require.NotNil(t, u.answer.Err)
	requireRank(t, u.answer.Err.Message, 2)
	require.Equal(t, first.Tokens[:len(u.answer.Tokens)], u.answer.Tokens)

	b.restart(2)
	b.ready()
	require.Equal(t, first.Tokens, ask().Tokens)
}
