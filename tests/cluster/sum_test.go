//go:build unix

package cluster

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestSumRepeats: with the standard way of adding, a cluster gives the same bits
// as long as its size is the same: in every epoch, and before a fault too.
func TestSumRepeats(t *testing.T) {
	testenv.Need(t, testenv.Full, "--reduce sum in two epochs of three ranks")
	t.Parallel()
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: []string{"--reduce", "sum"}})
	require.NoError(t, b.Start(0, 1, 2))
	b.ready()
	ask := func() *harness.Answer {
		a, err := b.Client.Complete(b.ctx, talk.request(t, b.Model))
		require.NoError(t, err)
		require.Nil(t, a.Err, "%+v", a.Err)
		require.Len(t, a.Tokens, talk.tokens)
		return a
	}
	first := ask()

	u := b.begin(phase{"decode", talk})
	_, err := b.Signal(2, syscall.SIGKILL)
	require.NoError(t, err)
	<-u.done
	require.NoError(t, u.err)
	require.NotNil(t, u.answer.Err)
	names(t, u.answer.Err.Message, 2)
	require.Equal(t, first.Tokens[:len(u.answer.Tokens)], u.answer.Tokens)

	require.NoError(t, again(b, 2))
	b.ready()
	require.Equal(t, first.Tokens, ask().Tokens)
}
