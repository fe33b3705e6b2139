// Package whole has what tests of whole models on a GPU's backend share: small models of every
// kind, runs of them on one rank and several, and comparisons of logits.
package whole

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// OpenCPU opens the CPU's backend with one thread, closed with the test.
func OpenCPU(t testing.TB) kernels.Backend {
	b, err := cpu.New(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// Open opens the model of a file, closed with the test.
func Open(t testing.TB, f *gguf.File, b kernels.Backend, o decoder.OpenOptions) decoder.Decoder {
	m, err := arch.Open(f, b, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// Preset is a file of a model by mkmodel's name, changed by edit.
func Preset(t testing.TB, name string, edit func(*synthetic.Config)) *gguf.File {
	c, err := synthetic.Preset(name)
	require.NoError(t, err)
	if edit != nil {
		edit(&c)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// SmallExperts is how many experts a model has that Shrink makes.
const SmallExperts = 7

// Shrink makes a small model of tiny: every kind of layer and few weights.
func Shrink(c *synthetic.Config) {
	c.Layers, c.Embd, c.Heads, c.HeadDim, c.RotDim = 5, 64, 4, 64, 32
	c.QRank, c.ORank, c.OGroups, c.Window = 32, 32, 2, 24
	c.Experts, c.Used, c.FF, c.HashLayers = SmallExperts, 3, 32, 1
	c.IndexHeads, c.IndexDim, c.TopK = 4, 32, 8
	c.Ratios = []int{0, 4, 128, 4, 128}
	c.Types = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
		Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}
}

// RandomIDs draws n token ids below vocab, always the same.
func RandomIDs(vocab, n int) []int32 {
	r := rand.New(rand.NewPCG(5, 6))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	return ids
}

// Run feeds ids to sequence 1 in the given chunks and then one by one, and
// returns the logits of all, [len(ids)][vocab].
func Run(t testing.TB, m decoder.Decoder, ids []int32, chunks ...int) ([][]float32, error) {
	var out [][]float32
	for at := 0; at < len(ids); {
		n := 1
		if len(chunks) > 0 {
			n, chunks = min(chunks[0], len(ids)-at), chunks[1:]
		}
		s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: at, Tokens: ids[at : at+n], Want: model.WantAll}}}
		rows, err := m.Forward(context.Background(), s)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			out = append(out, append([]float32(nil), r...))
		}
		m.Commit(s)
		at += n
	}
	return out, nil
}

// Argmax is the index of the largest number of a row, the first of equal ones.
func Argmax(row []float32) int {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return best
}

// Difference is the root mean square of got-want over the deviation of want.
func Difference(want, got [][]float32) float64 {
	var n, sum, square, errors float64
	for i := range want {
		for j, v := range want[i] {
			d := float64(got[i][j]) - float64(v)
			n++
			sum += float64(v)
			square += float64(v) * float64(v)
			errors += d * d
		}
	}
	return math.Sqrt(errors / (square - sum*sum/n))
}

// Same reports whether two sets of logits have the same bits.
func Same(want, got [][]float32) bool {
	for i := range want {
		for j, v := range want[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(v) {
				return false
			}
		}
	}
	return len(want) == len(got)
}

// ByToken is the difference of each token's logits, ascending.
func ByToken(want, got [][]float32) []float64 {
	d := make([]float64, len(want))
	for i := range want {
		d[i] = Difference(want[i:i+1], got[i:i+1])
	}
	slices.Sort(d)
	return d
}

// Ranks runs ids on ranks of a group with a backend each, which divide the model as how
// says, and returns the logits of rank 0.
func Ranks(t testing.TB, how parallel.Share, f *gguf.File, backends []kernels.Backend, o decoder.OpenOptions, ids []int32, chunks ...int) ([][]float32, error) {
	logits, _, err := RanksOfRows(t, how, 0, f, backends, o, ids, chunks...)
	return logits, err
}

// RanksOfRows is Ranks with the rows of steps of at least from rows divided too, 0 for
// none, and also returns the exchanges of rank 0. All ranks must have computed the same.
func RanksOfRows(t testing.TB, how parallel.Share, from int, f *gguf.File, backends []kernels.Backend, o decoder.OpenOptions, ids []int32, chunks ...int) ([][]float32, uint64, error) {
	n := len(backends)
	models := make([]decoder.Decoder, n)
	shares := make([]float64, n)
	for r, b := range backends {
		models[r], shares[r] = Open(t, f, b, o), 1
	}
	plan, err := arch.Plan(f, o, 1)
	require.NoError(t, err)
	placement, err := plan.Place(how, shares)
	require.NoError(t, err)
	for r, g := range memory.Groups(n) {
		require.NoError(t, models[r].Join(g, placement.DivideRows(from)))
		require.NoError(t, models[r].HoldWeights())
	}
	logits, errs := make([][][]float32, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() { logits[r], errs[r] = Run(t, models[r], ids, chunks...) })
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			return nil, 0, err
		}
		if !slices.Equal(models[0].Digest(), models[r].Digest()) {
			return nil, 0, fmt.Errorf("rank %d computed differently", r)
		}
		require.Equal(t, r == 0, len(logits[r]) > 0, "rank %d", r)
	}
	exchanges := uint64(0)
	for _, l := range models[0].LayerStats() {
		exchanges += l.Exchanges
	}
	return logits[0], exchanges, nil
}

// ShrinkLatent makes a small model of ds2-tiny: two leading layers, groups of experts.
func ShrinkLatent(c *synthetic.Config) {
	c.Layers, c.Embd, c.Heads, c.RotDim, c.QRank = 4, 64, 2, 16, 32
	c.Experts, c.Used, c.FF = 9, 3, 32
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 64, 32, 32, 2, 96, 3, 2
	c.Types = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
		Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}
}

// ShrinkSparse makes a small model of glm5-tiny, with indexers in three of four layers,
// whose tokens read 16 positions.
func ShrinkSparse(c *synthetic.Config) {
	ShrinkLatent(c)
	c.IndexHeads, c.IndexDim, c.TopK, c.Latent.IndexEvery, c.Latent.Groups, c.Latent.GroupsUsed = 3, 32, 16, 4, 1, 1
}
