package deepseek4_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels/reference"
	"ringmaster/model/deepseek4"
)

// TestAgreesWithReference: on random shapes and type mixes the CPU's logits
// agree with those of the reference kernels, which do not quantise activations.
// Where two experts or two entries are nearly tied the choice may differ and
// change the logits of that token, so most tokens are held to the bound and all
// to a loose one.
func TestAgreesWithReference(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 31))
			c := randomShape(t, r)
			path := write(t, c)
			ids := randomIDs(r, c.Vocab, 140)
			got := feed(t, open(t, path, 2, deepseek4.Options{}), 1, 0, ids, always(140))

			f, err := gguf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			b := reference.New()
			defer b.Close()
			m, err := deepseek4.Open(f, b, deepseek4.Options{MaxTokens: 140})
			require.NoError(t, err)
			defer m.Close()
			want := feed(t, m, 1, 0, ids, always(140))

			near := 0
			for i := range want {
				var diff, all float64
				for j, w := range want[i] {
					d := float64(w - got[i][j])
					diff += d * d
					all += float64(w) * float64(w)
				}
				relrms := math.Sqrt(diff / all)
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
