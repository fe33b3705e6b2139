package decodertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// Examined is all sums of a model, in pieces of so many experts or blocks.
func Examined(t testing.TB, m decoder.Decoder, seed uint64, each int) (sums []model.Sum) {
	e := m.Extent()
	all := func(layer, n int) {
		for from := 0; from < n; from += each {
			s, err := m.Examine(model.Piece{Layer: layer, From: from, To: min(from+each, n), Seed: seed})
			require.NoError(t, err)
			sums = append(sums, s...)
		}
	}
	for _, layer := range e.Layers {
		all(layer, e.Experts)
	}
	all(-1, e.Blocks)
	return sums
}

// Examines checks that sums are the same whatever the threads, the placement and steps
// before, that they cover every byte of the file that the model uses, and that a bit that
// differs is found in its tensor and expert, and nowhere else.
func (a Architecture) Examines(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	shapes := 1
	if testenv.Rest(t, testenv.Full, "examinations of models of more random shapes") {
		shapes = 4
	}
	for range shapes {
		c := a.Random(t, r)
		f := InMemory(t, c)
		o := decoder.OpenOptions{MaxTokens: 1 + r.IntN(40)}
		one := a.OpenOn(t, f, false, o)
		want := Examined(t, one, 7, 1)
		require.Equal(t, want, Examined(t, a.OpenOn(t, f, true, o), 7, 1), "deferred")
		require.NotEqual(t, want, Examined(t, one, 8, 1), "another seed")
		threads := a.openFile(t, Write(t, c), 3, o)
		require.Equal(t, want, Examined(t, threads, 7, 1), "3 threads")

		place, err := parallel.Place(parallel.ShareAll, one.Sizes(), Ones(2))
		require.NoError(t, err)
		ids := RandomIDs(r, c.Vocab, o.MaxTokens)
		before := Feed(t, one, 1, 0, ids, Always(o.MaxTokens))
		require.NoError(t, threads.Join(memory.Groups(2)[1], place))
		require.Equal(t, want, Examined(t, threads, 7, 1), "a rank of two")
		require.Equal(t, want, Examined(t, one, 7, model.MostPiece), "other pieces")
		RequireSame(t, before, Feed(t, one, 2, 0, ids, Always(o.MaxTokens)), "steps after an examination")

		a.findsFlips(t, r, f, want, func(tensor string, offset int, with byte) decoder.Decoder {
			return a.OpenOn(t, damaged(t, c, tensor, offset, with), false, o)
		})
	}
	m := a.OpenOn(t, InMemory(t, a.Small(t)), false, decoder.OpenOptions{})
	e := m.Extent()
	for _, p := range []model.Piece{{Layer: -2, To: 1}, {Layer: 1 << 20, To: 1}, {Layer: e.Layers[0], From: -1, To: 1}, {Layer: e.Layers[0], From: 2, To: 1},
		{Layer: e.Layers[0], To: e.Experts + 1}, {Layer: -1, To: e.Blocks + 1}, {Layer: -1, From: 1 << 40, To: 1<<40 + 1}, {Layer: -1, To: model.MostPiece + 1}} {
		_, err := m.Examine(p)
		require.ErrorContains(t, err, "cannot be examined", "%+v", p)
	}
}

// findsFlips changes the lowest bit of a random byte of each of some tensors.
func (Architecture) findsFlips(t *testing.T, r *rand.Rand, f *gguf.File, want []model.Sum, open func(tensor string, offset int, with byte) decoder.Decoder) {
	named := map[string]bool{}
	for _, s := range want {
		named[strings.TrimSuffix(s.Name, " (up)")] = true
	}
	tensors := f.Tensors()
	stacks := 0
	for _, i := range r.Perm(len(tensors)) {
		x := tensors[i]
		if strings.HasSuffix(x.Name, "tid2eid.weight") {
			continue // it may name an expert that does not exist
		}
		if strings.HasSuffix(x.Name, "exp_probs_b_vl.bias") || strings.HasSuffix(x.Name, "engram_embd.weight") {
			continue // not read, or one row at a time
		}
		require.True(t, named[x.Name], "tensor %s is not examined", x.Name)
		if strings.HasSuffix(x.Name, "_exps.weight") {
			if stacks++; stacks > 2 {
				continue
			}
		} else if r.IntN(len(tensors)) > 4 {
			continue
		}
		offset := r.IntN(len(x.Data))
		got := Examined(t, open(x.Name, offset, x.Data[offset]^1), 7, 64)
		require.Len(t, got, len(want))
		var found []model.Sum
		for i := range got {
			if got[i].Weights != want[i].Weights {
				found = append(found, got[i])
				continue
			}
			if got[i].Name == model.ExpertOutput && got[i].Result != want[i].Result {
				require.Contains(t, x.Name, fmt.Sprintf("blk.%d.ffn_", got[i].Layer))
				continue
			}
			require.Equal(t, want[i], got[i], "a bit of %s at %d", x.Name, offset)
		}
		require.Len(t, found, 1, "a bit of %s at %d", x.Name, offset)
		s := found[0]
		require.Equal(t, x.Name, strings.TrimSuffix(s.Name, " (up)"))
		if len(x.Shape) == 3 && strings.HasSuffix(x.Name, "_exps.weight") {
			require.Equal(t, offset/(len(x.Data)/int(x.Shape[2])), s.Expert)
		}
	}
}
