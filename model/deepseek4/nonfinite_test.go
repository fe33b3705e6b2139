package deepseek4_test

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
	"ringmaster/model"
	"ringmaster/model/deepseek4"
	"ringmaster/model/synthetic"
	"ringmaster/moe"
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

// TestNonFiniteRowsStayAlone: a sequence whose hidden state is NaN changes no bit
// of the others, in the same step or later in the memory that it leaves behind, on
// one rank and on several, which agree on their digests.
func TestNonFiniteRowsStayAlone(t *testing.T) {
	c := small(t)
	c.Experts = 19
	const bad = 77
	r := rand.New(rand.NewPCG(41, 42))
	ids := func(n int) []int32 {
		return slices.DeleteFunc(randomIDs(r, c.Vocab, n), func(id int32) bool { return id == bad })
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
	clean, dirty := inMemory(t, c), damaged(t, c, "token_embd.weight", bad*len(nan), nan...)
	for _, ranks := range []int{1, 3} {
		for _, reduce := range []moe.Reduce{moe.Sum, moe.Exact} {
			t.Run(fmt.Sprintf("%d ranks, %v", ranks, reduce), func(t *testing.T) {
				o := deepseek4.Options{MaxTokens: 64, Reduce: reduce}
				run := func(f *gguf.File) [][]float32 {
					all := openAll(t, f, ranks, false, o)
					all.join(t, c.Experts, ones(ranks))
					return all.play(t, steps)
				}
				want, got := run(clean), run(dirty)
				require.Len(t, got, len(want))
				for i := range want {
					if i == 1 || i == 2 { // of sequence 2
						require.False(t, isBad(want[i]))
						require.True(t, isBad(got[i]), "row %d: the file is not spoiled", i)
						continue
					}
					requireSame(t, want[i:i+1], got[i:i+1], fmt.Sprint("row ", i))
				}
			})
		}
	}
}
