package decodertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
)

// Preset is a shape by its name.
func Preset(t testing.TB, name string) synthetic.Config {
	c, err := synthetic.Preset(name)
	require.NoError(t, err, name)
	return c
}

// SmallTypes are the types of Architecture.Small.
var SmallTypes = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
	Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}

// RandomExperts draws types of the routed experts that rows of 32 and, if the model is so
// wide, of 256 allow.
func RandomExperts(r *rand.Rand, c *synthetic.Config) {
	types := []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.IQ4NL, gguf.MXFP4}
	c.Types.Down = types[r.IntN(len(types))]
	if c.Embd == 256 {
		types = append(types, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ1S, gguf.IQ1M,
			gguf.IQ2XXS, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S, gguf.IQ4XS, gguf.NVFP4)
	}
	c.Types.Gate, c.Types.Up = types[r.IntN(len(types))], types[r.IntN(len(types))]
}

// shapes runs a test of Small and of random shapes, as many as the form demands: fast, full and
// exhaustive. stream tells the random numbers of one test from those of others. Every other one
// is to run on a backend that runs nothing before Flush.
func (a Architecture) shapes(t *testing.T, n [3]int, stream uint64, test func(t *testing.T, r *rand.Rand, f *gguf.File, lazy bool)) {
	count := n[0]
	switch {
	case testenv.At(testenv.Exhaustive):
		count = n[2]
	case testenv.At(testenv.Full):
		count = n[1]
	}
	for i := range count {
		t.Run(fmt.Sprint("shape ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), stream))
			c := a.Small(t)
			if i > 0 {
				c = a.Random(t, r)
			}
			test(t, r, InMemory(t, c), i%2 > 0)
		})
	}
}
