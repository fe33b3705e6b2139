package decodertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
)

// extra is a tensor that is added to a file: eight times the value, in F32.
type extra struct {
	name  string
	value float32
}

// withTensors is the file of a shape with further tensors, read into memory.
func withTensors(t testing.TB, c synthetic.Config, tensors ...extra) *gguf.File {
	w, err := c.Writer()
	require.NoError(t, err)
	for _, x := range tensors {
		require.NoError(t, w.Add(x.name, gguf.F32, []int64{8}, func(w io.Writer) error {
			var b []byte
			for range 8 {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x.value))
			}
			_, err := w.Write(b)
			return err
		}))
	}
	return gguftest.Open(t, "test file", w)
}

// override changes an integer of a file's metadata.
func override(t testing.TB, f *gguf.File, key string, value int) {
	_, err := f.Override(fmt.Sprintf("%s.%s=int:%d", f.Architecture(), key, value))
	require.NoError(t, err)
}

// PredictionBlocks: a block at the end of a file with any tensor nextn.* does not run as
// a layer, whatever the names of its tensors and whether the metadata counts it or not.
// The plan names it.
func (a Architecture) PredictionBlocks(t *testing.T) {
	c := a.Small(t)
	layers := c.Layers
	c.Layers++ // becomes the block, with the tensors of a layer
	if c.Ratios != nil {
		c.Ratios = append(slices.Clone(c.Ratios), 0)
	}
	block := func(i int, names ...string) (tensors []extra) {
		for _, n := range names {
			tensors = append(tensors, extra{fmt.Sprintf("blk.%d.nextn.%s.weight", i, n), 1})
		}
		return tensors
	}
	ids := RandomIDs(rand.New(rand.NewPCG(1, 2)), c.Vocab, 40)
	var want [][]float32
	for i, x := range []struct {
		what           string
		blocks, counts int
		tensors        []extra
	}{
		{"not counted as a block", layers, 0, block(layers, "eh_proj")},
		{"llama.cpp", layers + 1, 1, block(layers, "eh_proj", "enorm", "hnorm")},
		{"forks", layers + 1, 1, block(layers, "e_proj", "h_proj", "enorm", "hnorm", "hc_head_fn")},
		{"without the key", layers + 1, 0, block(layers, "e_proj", "h_proj")},
		{"a name that is not known", layers + 1, 1, block(layers, "something_new")},
		{"three, one of them without a tensor of its own", layers + 1, 1, append(block(layers, "e_proj"), block(layers+2, "shared_head_norm")...)},
		{"counted as two, one without a tensor of its own", layers + 2, 2, block(layers+1, "e_proj")},
		{"under mtp too", layers + 1, 1, append(block(layers, "enorm"), extra{"mtp.0.e_proj.weight", 1})},
	} {
		f := withTensors(t, c, x.tensors...)
		override(t, f, "block_count", x.blocks)
		override(t, f, "nextn_predict_layers", x.counts)
		m := a.OpenOn(t, f, false, decoder.OpenOptions{MaxTokens: 40})
		rows := Feed(t, m, 1, 0, ids, Always(40))
		if i == 0 {
			want = rows
		}
		RequireSame(t, want, rows, x.what)
		p, err := arch.Plan(f, decoder.OpenOptions{}, 1)
		require.NoError(t, err)
		require.Equal(t, layers, p.Layers, x.what)
		require.Contains(t, p.UnreadOf, fmt.Sprintf("blk.%d (multi-token prediction)", layers), x.what)
		require.Positive(t, p.Unread, x.what)
	}
}

// UnknownTensors: a tensor that nothing reads is refused by its name, wherever it is,
// because without it the layers may not compute what was trained. RoPE factors are
// allowed if they are all 1.
func (a Architecture) UnknownTensors(t *testing.T) {
	c := a.Small(t)
	for _, name := range []string{"blk.1.attn_q_a.bias", "blk.0.attn_q_norm.weight", "blk.0.nextn.e_proj.weight", "blk.77.attn_norm.weight",
		"output.bias", "output_norm.bias", "token_embd_norm.weight", "rope_factors_long.weight", "per_layer_token_embd.weight", "blk.x.weight"} {
		err := a.tryOpen(t, withTensors(t, c, extra{name, 1}))
		require.ErrorContains(t, err, fmt.Sprintf("tensor %q is not part of this architecture", name))
		var file *model.FileError
		require.ErrorAs(t, err, &file)
	}
	require.ErrorContains(t, a.tryOpen(t, withTensors(t, c, extra{"rope_freqs.weight", 2})), `tensor "rope_freqs.weight" has factors for RoPE's frequencies other than 1`)
	f := withTensors(t, c, extra{"rope_freqs.weight", 1})
	require.NoError(t, a.tryOpen(t, f))
	p, err := arch.Plan(f, decoder.OpenOptions{}, 1)
	require.NoError(t, err)
	require.Contains(t, p.UnreadOf, "rope_freqs.weight (RoPE factors of 1)")
}
