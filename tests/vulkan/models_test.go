//go:build linux && cgo

// Package vulkan_test runs whole models on the Vulkan backend beside the CPU's.
package vulkan_test

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/memory"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/vulkan"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// open opens Mesa's software device.
func open(t testing.TB) kernels.Backend {
	b, err := vulkan.Open(vulkan.Options{Device: "llvmpipe"})
	if err != nil {
		t.Skip("NOT CHECKED: no software device for Vulkan:", err)
	}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func openCPU(t testing.TB) kernels.Backend {
	b, err := cpu.New(1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func openModel(t testing.TB, f *gguf.File, b kernels.Backend, o decoder.OpenOptions) decoder.Decoder {
	m, err := arch.Open(f, b, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// preset is a file of a model by mkmodel's name, changed by edit.
func preset(t testing.TB, name string, edit func(*synthetic.Config)) *gguf.File {
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

// shrink makes small of tiny.
func shrink(c *synthetic.Config) {
	c.Layers, c.Embd, c.Heads, c.HeadDim, c.RotDim = 5, 64, 4, 64, 32
	c.QRank, c.ORank, c.OGroups, c.Window = 32, 32, 2, 24
	c.Experts, c.Used, c.FF, c.HashLayers = 7, 3, 32, 1
	c.IndexHeads, c.IndexDim, c.TopK = 4, 32, 8
	c.Ratios = []int{0, 4, 128, 4, 128}
	c.Types = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
		Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}
}

func randomIDs(vocab, n int) []int32 {
	r := rand.New(rand.NewPCG(5, 6))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	return ids
}

// run feeds ids to sequence 1 in the given chunks and then one by one, and
// returns the logits of all, [len(ids)][vocab].
func run(t testing.TB, m decoder.Decoder, ids []int32, chunks ...int) ([][]float32, error) {
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

func argmax(row []float32) int {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return best
}

// difference is the root mean square of got-want over the deviation of want.
func difference(want, got [][]float32) float64 {
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

func same(want, got [][]float32) bool {
	for i := range want {
		for j, v := range want[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(v) {
				return false
			}
		}
	}
	return len(want) == len(got)
}

// byToken is the difference of each token's logits, ascending.
func byToken(want, got [][]float32) []float64 {
	d := make([]float64, len(want))
	for i := range want {
		d[i] = difference(want[i:i+1], got[i:i+1])
	}
	slices.Sort(d)
	return d
}

// shrinkLatent makes a small model of ds2-tiny: two leading layers, groups of experts.
func shrinkLatent(c *synthetic.Config) {
	c.Layers, c.Embd, c.Heads, c.RotDim, c.QRank = 4, 64, 2, 16, 32
	c.Experts, c.Used, c.FF = 9, 3, 32
	l := &c.Latent
	l.Rank, l.Nope, l.Value, l.Dense, l.DenseFF, l.Groups, l.GroupsUsed = 64, 32, 32, 2, 96, 3, 2
	c.Types = synthetic.Types{Gate: gguf.Q8_0, Up: gguf.Q8_0, Down: gguf.Q8_0, Dense: gguf.Q8_0,
		Aux: gguf.F16, Embd: gguf.F16, Output: gguf.Q8_0}
}

// shrinkSparse makes a small model of glm5-tiny, with indexers in three of four layers,
// whose tokens read 16 positions.
func shrinkSparse(c *synthetic.Config) {
	shrinkLatent(c)
	c.IndexHeads, c.IndexDim, c.TopK, c.Latent.IndexEvery, c.Latent.Groups, c.Latent.GroupsUsed = 3, 32, 16, 4, 1, 1
}

// ranks runs ids on ranks of a group with a backend each, which divide the model as how
// says, and returns the logits of rank 0. All ranks must have computed the same.
func ranks(t testing.TB, how parallel.Share, f *gguf.File, backends []kernels.Backend, o decoder.OpenOptions, ids []int32, chunks ...int) [][]float32 {
	n := len(backends)
	models := make([]decoder.Decoder, n)
	shares := make([]float64, n)
	for r, b := range backends {
		models[r], shares[r] = openModel(t, f, b, o), 1
	}
	plan, err := arch.Plan(f, o, 1)
	require.NoError(t, err)
	placement, err := plan.Place(how, shares)
	require.NoError(t, err)
	for r, g := range memory.Groups(n) {
		require.NoError(t, models[r].Join(g, placement))
	}
	logits, errs := make([][][]float32, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() { logits[r], errs[r] = run(t, models[r], ids, chunks...) })
	}
	all.Wait()
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
		require.Equal(t, models[0].Digest(), models[r].Digest(), "rank %d computed differently", r)
	}
	return logits[0]
}

// each runs a check on a small model of each architecture; in the fast form on one, because kernels are
// compiled for a CPU.
func each(t *testing.T, check func(t *testing.T, f *gguf.File)) {
	for _, m := range []struct {
		preset string
		edit   func(*synthetic.Config)
	}{{"ds2-tiny", shrinkLatent}, {"tiny", shrink}, {"glm5-tiny", shrinkSparse}} {
		if m.preset != "ds2-tiny" && !testenv.Rest(t, testenv.Full, m.preset+" on the software device") {
			continue
		}
		t.Run(m.preset, func(t *testing.T) { check(t, preset(t, m.preset, m.edit)) })
	}
}

// TestLogits: prefilled in chunks and then one by one, logits are the CPU's but for float32
// rounding, and so are nearly all best tokens.
func TestLogits(t *testing.T) {
	each(t, func(t *testing.T, f *gguf.File) {
		o := decoder.OpenOptions{MaxTokens: 64}
		onCPU, onDevice := openModel(t, f, openCPU(t), o), openModel(t, f, open(t), o)
		ids := randomIDs(onCPU.Info().Vocab, 60)
		want, err := run(t, onCPU, ids, 40, 1, 10)
		require.NoError(t, err)
		got, err := run(t, onDevice, ids, 40, 1, 10)
		require.NoError(t, err)
		d, others := byToken(want, got), 0
		for i := range want {
			if argmax(want[i]) != argmax(got[i]) {
				others++
			}
		}
		t.Logf("difference of a token: median %.2g, nine in ten below %.2g, all %.2g of the deviation; %d of %d best tokens differ",
			d[len(d)/2], d[len(d)*9/10], d[len(d)-1], others, len(ids))
		require.Less(t, d[len(d)/2], 0.01)
		require.Less(t, d[len(d)*9/10], 0.1)
		require.LessOrEqual(t, others, 2)
	})
}

// TestRanks: two or three ranks that reduce exactly give the bits of one, whatever is
// divided; with float16 sums they agree with each other, and with one rank up to
// rounding.
func TestRanks(t *testing.T) {
	testenv.Need(t, testenv.Full, "models of 12 ranks on the software device")
	each(t, func(t *testing.T, f *gguf.File) {
		for _, reduce := range []parallel.Reduce{parallel.Exact, parallel.Sum} {
			o := decoder.OpenOptions{MaxTokens: 64, Reduce: reduce}
			one := openModel(t, f, open(t), o)
			ids := randomIDs(one.Info().Vocab, 30)
			want, err := run(t, one, ids, 20)
			require.NoError(t, err)
			for how, n := range map[parallel.Share]int{parallel.ShareExperts: 2, parallel.ShareAll: 3} {
				var backends []kernels.Backend
				for range n {
					backends = append(backends, open(t))
				}
				got := ranks(t, how, f, backends, o, ids, 20)
				if reduce == parallel.Exact {
					require.True(t, same(want, got), "%v: the ranks differ from one", how)
				} else {
					require.Less(t, difference(want, got), 0.02, "%v", how)
				}
			}
		}
	})
}
