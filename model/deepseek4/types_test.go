package deepseek4_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
)

// wide is a model of every kind of layer each of whose rows, but those of
// vectors, has whole blocks of every type.
func wide(t testing.TB) synthetic.Config {
	c := small(t)
	c.Layers, c.Ratios = 3, []int{0, 4, 128}
	c.Vocab = 300
	c.Embd, c.Heads, c.HeadDim, c.QRank, c.ORank, c.OGroups = 256, 2, 256, 256, 128, 2
	c.Experts, c.Used, c.FF, c.IndexHeads, c.IndexDim, c.TopK, c.Streams = 2, 1, 256, 1, 128, 1, 1
	return c
}

// TestEveryTypeOfEveryTensor: a file with a tensor of another type loads and
// runs, or is refused with an error that names the tensor, its type and what is
// allowed. No op panics.
func TestEveryTypeOfEveryTensor(t *testing.T) {
	c := wide(t)
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	var refused int
	all := testenv.At(testenv.Exhaustive)
	for i, tensor := range inMemory(t, c).Tensors() {
		if tensor.Type == gguf.I32 {
			continue
		}
		for kind := gguf.Type(0); kind <= gguf.MXFP4; kind++ {
			if !synthetic.CanMake(kind) || tensor.Shape[0]%int64(kind.BlockElements()) != 0 {
				continue
			}
			// In other runs one type of each tensor, and all of the one that may have few.
			if !all && int(kind) != i%int(gguf.MXFP4+1) && tensor.Name != "blk.1.attn_compressor_ape.weight" {
				continue
			}
			c.TensorTypes = map[string]gguf.Type{tensor.Name: kind}
			m, err := deepseek4.Open(inMemory(t, c), b, deepseek4.Options{MaxTokens: 8, Context: 64})
			if err != nil {
				refused++
				require.ErrorContains(t, err, fmt.Sprintf("%q", tensor.Name))
				require.ErrorContains(t, err, fmt.Sprintf("is %s, must be F32, F16 or BF16", kind))
				continue
			}
			for pos := 0; pos < 16; pos += 8 { // the second step runs the indexer
				s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: make([]int32, 8), Want: model.WantLast}}}
				_, err = m.Forward(context.Background(), s)
				require.NoError(t, err, "%s of %s", tensor.Name, kind)
				m.Commit(s)
			}
			require.NoError(t, m.Close())
		}
	}
	require.Positive(t, refused)
}
