package decodertest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
	"ringmaster/kernels/deferred"
	"ringmaster/model/decoder"
)

// FlushesAreWhereTheyMustBe checks that on a backend that runs nothing before Flush
// and shows NaN until then the logits have the same bits.
func (a Architecture) FlushesAreWhereTheyMustBe(t *testing.T) {
	c := a.Small(t)
	path := Write(t, c)
	r := rand.New(rand.NewPCG(11, 12))
	ids := RandomIDs(r, c.Vocab, 260)
	want := Feed(t, a.openFile(t, path, 1, decoder.OpenOptions{MaxTokens: 130}), 1, 0, ids, Always(130))

	inner, err := cpu.New(2)
	require.NoError(t, err)
	m := a.openWith(t, openPath(t, path), deferred.Wrap(inner), decoder.OpenOptions{MaxTokens: 64})
	RequireSame(t, want, Feed(t, m, 1, 0, ids, func() int { return 1 + r.IntN(64) }), "deferred")
}
