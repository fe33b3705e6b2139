package deepseek4_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/model/deepseek4"
)

// TestFlushesAreWhereTheyMustBe: on a backend that runs nothing before Flush
// and shows NaN until then the logits have the same bits.
func TestFlushesAreWhereTheyMustBe(t *testing.T) {
	c := small(t)
	path := write(t, c)
	r := rand.New(rand.NewPCG(11, 12))
	ids := randomIDs(r, c.Vocab, 260)
	want := feed(t, open(t, path, 1, deepseek4.Options{MaxTokens: 130}), 1, 0, ids, always(130))

	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	inner, err := cpu.New(2)
	require.NoError(t, err)
	b := deferred.Wrap(inner)
	defer b.Close()
	m, err := deepseek4.Open(f, b, deepseek4.Options{MaxTokens: 64})
	require.NoError(t, err)
	defer m.Close()
	requireSame(t, want, feed(t, m, 1, 0, ids, func() int { return 1 + r.IntN(64) }), "deferred")
}
