package decodertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/reference"
	"ringmaster/model/decoder"
)

// AgreesWithReference checks that on random shapes and type mixes the CPU's logits agree
// with those of the reference kernels, which do not quantise activations. Most tokens are
// held to the bound and all to a loose one, because two nearly tied experts or entries
// may be chosen differently and change the logits of that token.
func (a Architecture) AgreesWithReference(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 31))
			c := a.Random(t, r)
			path := Write(t, c)
			ids := RandomIDs(r, c.Vocab, 140)
			got := Feed(t, a.openFile(t, path, 2, decoder.OpenOptions{}), 1, 0, ids, Always(140))

			m := a.openWith(t, openPath(t, path), reference.New(), decoder.OpenOptions{MaxTokens: 140})
			want := Feed(t, m, 1, 0, ids, Always(140))

			near := 0
			for i := range want {
				relrms := relative(want[i], got[i])
				require.Less(t, relrms, 1.0, "token %d", i)
				if relrms < 0.01 {
					near++
				}
			}
			t.Logf("%d of %d tokens within 0.01", near, len(want))
			require.Greater(t, near, len(want)*9/10)
		})
	}
}
