package decodertest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
)

// EveryTypeOfEveryTensor checks that a file with a tensor of another type loads and runs,
// or is refused with an error that names the tensor, its type and what is allowed. No op
// panics. Each row of c has whole blocks of every type. Except in the longest runs it
// tries one type of each tensor, and all types of the tensors named. It returns how many
// were refused.
func (a Architecture) EveryTypeOfEveryTensor(t *testing.T, c synthetic.Config, named ...string) (refused int) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	all := testenv.At(testenv.Exhaustive)
	for i, tensor := range InMemory(t, c).Tensors() {
		if tensor.Type == gguf.I32 {
			continue
		}
		for kind := gguf.Type(0); kind <= gguf.LastType; kind++ {
			if !synthetic.CanMake(kind) || tensor.Shape[0]%int64(kind.BlockElements()) != 0 {
				continue
			}
			if !all && int(kind) != i%int(gguf.LastType+1) && !slices.Contains(named, tensor.Name) {
				continue
			}
			c.TensorTypes = map[string]gguf.Type{tensor.Name: kind}
			m, err := arch.Open(InMemory(t, c), b, decoder.OpenOptions{MaxTokens: 8, Context: 64})
			if err != nil {
				refused++
				require.ErrorContains(t, err, fmt.Sprintf("%q", tensor.Name))
				require.ErrorContains(t, err, fmt.Sprintf("is %s, must be F32, F16 or BF16", kind))
				continue
			}
			for pos := 0; pos < 16; pos += 8 { // the second step of deepseek4 runs the indexer
				s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: make([]int32, 8), Want: model.WantLast}}}
				_, err = m.Forward(context.Background(), s)
				require.NoError(t, err, "%s of %s", tensor.Name, kind)
				m.Commit(s)
			}
			require.NoError(t, m.Close())
		}
	}
	return refused
}
