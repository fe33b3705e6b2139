package decodertest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/gguf/gguftest"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// damaged is the file of c with other bytes at an offset of a tensor.
func damaged(t *testing.T, c synthetic.Config, tensor string, offset int, with ...byte) *gguf.File {
	w, err := c.Writer()
	require.NoError(t, err)
	data := gguftest.Bytes(t, w)
	f, err := gguf.Read("test file", data)
	require.NoError(t, err)
	x, ok := f.Tensor(tensor)
	require.True(t, ok, tensor)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(x.Data))) - uintptr(unsafe.Pointer(unsafe.SliceData(f.Mappings()[0])))
	require.NoError(t, f.Close())
	copy(data[int(at)+offset:], with)
	f, err = gguf.Read("test file", data)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// NonFiniteRowsStayAlone checks that a sequence with a hidden state of NaN changes no bit
// of the others, neither in the same step nor later in the memory that it leaves behind.
// It runs on one rank and on several, which agree on their digests.
func (a Architecture) NonFiniteRowsStayAlone(t *testing.T) {
	c := a.Small(t)
	c.Experts = 21
	const bad = 77
	r := rand.New(rand.NewPCG(41, 42))
	ids := func(n int) []int32 {
		return slices.DeleteFunc(RandomIDs(r, c.Vocab, n), func(id int32) bool { return id == bad })
	}
	first, second, third := ids(20), ids(30), ids(12)
	spoiled := slices.Concat(first[:10], []int32{bad}, first[10:])
	entry := func(seq model.SeqID, pos int, tokens []int32) model.Entry {
		return model.Entry{Seq: seq, Pos: pos, Tokens: tokens, Want: model.WantLast}
	}
	steps := []model.Step{
		{Entries: []model.Entry{entry(1, 0, first), entry(2, 0, spoiled)}},
		{Entries: []model.Entry{entry(2, len(spoiled), []int32{5}), entry(1, len(first), []int32{6})}},
		{Drop: []model.SeqID{2}, Entries: []model.Entry{entry(1, len(first)+1, second)}},
		{Entries: []model.Entry{entry(3, 0, third), entry(1, len(first)+1+len(second), []int32{9})}},
	}
	isBad := func(row []float32) bool {
		return slices.ContainsFunc(row, func(x float32) bool { return math.IsNaN(float64(x)) })
	}
	nan := bytes.Repeat([]byte{0x00, 0x7e}, c.Embd) // float16
	clean, dirty := InMemory(t, c), damaged(t, c, "token_embd.weight", bad*len(nan), nan...)
	for _, ranks := range []int{1, 3} {
		for _, reduce := range []parallel.Reduce{parallel.Sum, parallel.Exact} {
			t.Run(fmt.Sprintf("%d ranks, %v", ranks, reduce), func(t *testing.T) {
				o := decoder.OpenOptions{MaxTokens: 64, Reduce: reduce}
				run := func(f *gguf.File) [][]float32 {
					all := a.OpenAll(t, f, ranks, false, o)
					all.Join(t, BothShares[ranks%2], Ones(ranks))
					return all.Play(t, steps)
				}
				want, got := run(clean), run(dirty)
				require.Len(t, got, len(want))
				for i := range want {
					if i == 1 || i == 2 { // of sequence 2
						require.False(t, isBad(want[i]))
						require.True(t, isBad(got[i]), "row %d: the file is not spoiled", i)
						continue
					}
					RequireSame(t, want[i:i+1], got[i:i+1], fmt.Sprint("row ", i))
				}
			})
		}
	}
}

// NonFiniteWeightsAtLoad checks that a NaN in one of the tensors small, which every token
// reads, is an error of Open that names file, tensor, type and place. Open does not
// notice one in the large tensors, because it does not read them; gguf.CheckWeights does.
func (a Architecture) NonFiniteWeightsAtLoad(t *testing.T, small, large []string) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	defer b.Close()
	c := a.Small(t)
	f16, f32 := []byte{0x00, 0xfe}, []byte{0x00, 0x00, 0x80, 0xff} // NaN, -Inf
	for i, name := range slices.Concat(small, large) {
		t.Run(name, func(t *testing.T) {
			x, ok := InMemory(t, c).Tensor(name)
			require.True(t, ok)
			bad, what := f16, "NaN"
			if x.Type == gguf.F32 {
				bad, what = f32, "-Inf"
			}
			f := damaged(t, c, name, 0, bad...)
			m, err := arch.Open(f, b, decoder.OpenOptions{MaxTokens: 8})
			want := fmt.Sprintf("test file: tensor %q (%s): row 0", name, x.Type)
			if i >= len(small) {
				require.NoError(t, err)
				require.NoError(t, m.Close())
				err = gguf.CheckWeights(t.Context(), f, nil)
			}
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, what)
			require.ErrorIs(t, err, gguf.ErrNonFinite)
		})
	}
}
