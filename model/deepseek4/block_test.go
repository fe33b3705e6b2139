package deepseek4_test

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/model"
	"ringmaster/model/decoder/decodertest"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
)

// TestFormsOfBlocks: a block in the model's file, and in files of its own with either
// names, gives the same guesses. Without a collapse of its own a block uses the model's.
func TestFormsOfBlocks(t *testing.T) {
	c := small(t)
	ids := decodertest.RandomIDs(rand.New(rand.NewPCG(8, 10)), c.Vocab, 60)
	guess := func(f, drafts *gguf.File) [][]float32 {
		m := architecture.OpenOn(t, f, false, deepseek4.Options{MaxTokens: 60, DraftFile: drafts})
		decodertest.Feed(t, m, 1, 0, ids, decodertest.Always(20))
		return decodertest.Guess(t, m, 4, model.DraftEntry{Seq: 1, Token: 7})[0]
	}
	form := func(block string) *gguf.File {
		c.Block = block
		return decodertest.InMemory(t, c)
	}
	plain, parts, joined := form(""), form(synthetic.BlockParts), form(synthetic.BlockJoined)
	want := guess(parts, parts)
	require.Len(t, want, 4)
	decodertest.RequireSame(t, want, guess(plain, form(synthetic.BlockAlone)), "mtp.0")
	decodertest.RequireSame(t, want, guess(plain, without(t, parts)), "a file without the layers")
	require.NotEqual(t, want, guess(joined, joined))
	_, own := joined.Tensor("blk.5.nextn.hc_head_fn.weight")
	require.False(t, own)
}

// without is a file of the block of another alone, in which the coefficients of its
// collapse have the names that a model's have.
func without(t *testing.T, f *gguf.File) *gguf.File {
	w := gguf.NewWriter()
	require.NoError(t, w.Put("general.architecture", "deepseek4"))
	for _, x := range f.Tensors() {
		name, ours := strings.CutPrefix(x.Name, "blk.5.")
		if !ours {
			continue
		}
		name = strings.Replace("blk.5."+name, "blk.5.nextn.hc_head", "output_hc", 1)
		require.NoError(t, w.Add(name, x.Type, x.Shape, func(w io.Writer) error {
			_, err := w.Write(x.Data)
			return err
		}))
	}
	return gguftest.Open(t, "block file", w)
}
