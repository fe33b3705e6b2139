package golden

import (
	"cmp"
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/reference"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/tests/exact"
)

// unrounded is the reference backend with KV caches that are not rounded to float16: it keeps
// the rows that StoreKV was given, by their places, beside the caches. Rounded caches make
// some 3e-4 of a token's logits, which turns the choice of an entry or an expert in some
// tokens, and these turn others; without that a forward pass can be told to be the very
// function.
type unrounded struct {
	*reference.Backend
	rows map[*uint16][]float32
}

// StoreKV implements kernels.Backend.
func (u *unrounded) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	u.Backend.StoreKV(ring, x, rows, cols, pos, ringRows)
	for t := range rows {
		u.rows[&ring[(pos+t)%ringRows*cols]] = slices.Clone(x[t*cols:][:cols])
	}
}

func product(a, b []float32) (sum float64) {
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// IndexTopK implements kernels.Backend.
func (u *unrounded) IndexTopK(a kernels.IndexArgs) {
	if a.Freqs != nil {
		u.RoPE(a.Queries())
	}
	for t := range a.Rows {
		n := (a.Pos + t + 1) / a.Ratio
		scores := make([]float64, n)
		for e := range scores {
			key := u.rows[&a.Cache[e*a.Dim]]
			for h := range a.Heads {
				s := product(key, a.Q[(t*a.Heads+h)*a.Dim:])
				scores[e] += float64(a.HeadWeight[t*a.Heads+h]) * float64(a.Scale) * math.Max(0, s)
			}
		}
		masked := a.Blocks != nil && a.Mask
		eligible := make([]int32, 0, n)
		for e := range int32(n) {
			if !masked || slices.Contains(a.Blocks[t*a.BlocksKept:][:a.BlocksKept], e/int32(a.BlockSize)) {
				eligible = append(eligible, e)
			}
		}
		largest(a.Selected[t*a.TopK:][:a.TopK], eligible, func(e int32) float64 { return scores[e] })
		if a.Blocks == nil || a.Mask {
			continue
		}
		var blocks []int32
		for b := range int32((n + a.BlockSize - 1) / a.BlockSize) {
			blocks = append(blocks, b)
		}
		largest(a.Blocks[t*a.BlocksKept:][:a.BlocksKept], blocks, func(b int32) float64 { return reference.BlockScore(a, scores, int(b)) })
	}
}

// largest writes the numbers with the largest scores, ascending, and then -1.
func largest(out, numbers []int32, score func(int32) float64) {
	slices.SortStableFunc(numbers, func(x, y int32) int { return cmp.Compare(score(y), score(x)) })
	numbers = numbers[:min(len(numbers), len(out))]
	slices.Sort(numbers)
	for i := copy(out, numbers); i < len(out); i++ {
		out[i] = -1
	}
}

// Attend implements kernels.Backend.
func (u *unrounded) Attend(a kernels.AttendArgs) {
	if a.RotateQ {
		u.RoPE(a.Queries())
	}
	for t := range a.Rows {
		p := a.Pos + t
		var keys [][]float32
		for q := max(0, p-a.Window+1); q <= p; q++ {
			keys = append(keys, u.rows[&a.Raw[q%a.RingRows*a.HeadDim]])
		}
		switch {
		case a.Ratio == 0:
		case a.Selected != nil:
			for _, e := range a.Selected[t*a.TopK:][:a.TopK] {
				if e >= 0 {
					keys = append(keys, u.rows[&a.Compressed[int(e)*a.HeadDim]])
				}
			}
		default:
			for e := range (p + 1) / a.Ratio {
				keys = append(keys, u.rows[&a.Compressed[e*a.HeadDim]])
			}
		}
		for h := range a.Heads {
			q := a.Q[(t*a.Heads+h)*a.HeadDim:][:a.HeadDim]
			scores, most := make([]float64, len(keys)), float64(a.Sinks[h])
			for k, key := range keys {
				scores[k] = float64(a.Scale) * product(q, key)
				most = math.Max(most, scores[k])
			}
			weights, out := math.Exp(float64(a.Sinks[h])-most), make([]float64, a.ValueDim)
			for k, key := range keys {
				w := math.Exp(scores[k] - most)
				weights += w
				for c := range out {
					out[c] += w * float64(key[c])
				}
			}
			for c, v := range out {
				a.Out[(t*a.Heads+h)*a.ValueDim+c] = float32(v / weights)
			}
		}
	}
	if a.Freqs != nil {
		u.RoPE(a.Back())
	}
}

// chooser remembers, call by call, which entries and experts a backend chooses, or makes it
// take those that another has chosen.
type chooser struct {
	kernels.Backend
	entries, experts [][]int32
	follows          *chooser // nil to choose
	others           int      // rows of entries or experts that it would have chosen otherwise
}

// decide remembers a choice [rows][of each row], and replaces it by the one that is followed.
func (c *chooser) decide(made []int32, each int, list *[][]int32, followed func(*chooser) [][]int32) {
	*list = append(*list, slices.Clone(made))
	if c.follows == nil {
		return
	}
	want := followed(c.follows)[len(*list)-1]
	for at := 0; at < len(made); at += each {
		if !slices.Equal(made[at:at+each], want[at:at+each]) {
			c.others++
		}
	}
	copy(made, want)
}

// IndexTopK implements kernels.Backend.
func (c *chooser) IndexTopK(a kernels.IndexArgs) {
	c.Backend.IndexTopK(a)
	c.decide(a.Selected[:a.Rows*a.TopK], a.TopK, &c.entries, func(f *chooser) [][]int32 { return f.entries })
}

// Route implements kernels.Backend. Experts that are followed are given as a table, from which
// the backend computes their weights.
func (c *chooser) Route(a kernels.RouteArgs) {
	c.Backend.Route(a)
	c.decide(a.IDs[:a.Rows*a.Used], a.Used, &c.experts, func(f *chooser) [][]int32 { return f.experts })
	if c.follows == nil {
		return
	}
	a.Table, a.Tokens, a.Bias = slices.Clone(a.IDs[:a.Rows*a.Used]), make([]int32, a.Rows), nil
	for t := range a.Tokens {
		a.Tokens[t] = int32(t)
	}
	c.Backend.Route(a)
}

// TestExactPassOfV41: with caches that are not rounded our forward pass is the function of
// the float64 program. With caches of float16 it stays as near as before the first choice
// that falls the other way, over all tokens, if it takes the entries and experts of the pass
// without rounding: rounding does no more than turn choices.
func TestExactPassOfV41(t *testing.T) {
	dir := goldenDir(t)
	ids := readIDs(t, filepath.Join(dir, "ids.txt"))[:150]
	if testenv.Rest(t, testenv.Full, "another 150 tokens") {
		ids = readIDs(t, filepath.Join(dir, "ids.txt"))[:300]
	}
	path := filepath.Join(t.TempDir(), "v41-tiny-f32.gguf")
	runPython(t, filepath.Join(dir, "make_model41.py"), "-o", path, "--preset", "v41-tiny-f32")
	want := readLogits(t, filepath.Join(dir, "v41-tiny-f32.reference.f32"), 300)[:len(ids)]
	pass := func(b kernels.Backend) (far, same float64) {
		m, err := arch.Open(gguftest.OpenFile(t, path), b, decoder.OpenOptions{MaxTokens: len(ids)})
		require.NoError(t, err)
		defer m.Close()
		rows, err := m.Forward(context.Background(), model.Step{Entries: []model.Entry{{Seq: 1, Tokens: ids, Want: model.WantAll}}})
		require.NoError(t, err)
		got := make([][]float64, len(rows))
		for i, row := range rows {
			for _, v := range row {
				got[i] = append(got[i], float64(v))
			}
		}
		return exact.Distance(got, want)
	}
	chosen := &chooser{Backend: &unrounded{reference.New(), map[*uint16][]float32{}}}
	far, same := pass(chosen)
	t.Logf("relrms %.2g", far)
	require.LessOrEqual(t, far, 1e-5)
	require.Equal(t, 1.0, same)

	rounded := &chooser{Backend: reference.New(), follows: chosen}
	far, same = pass(rounded)
	t.Logf("relrms %.2g with float16 caches and the same choices; %d rows would have chosen otherwise", far, rounded.others)
	require.LessOrEqual(t, far, 0.0006)
	require.GreaterOrEqual(t, same, 0.99)
	require.Positive(t, rounded.others)
}
