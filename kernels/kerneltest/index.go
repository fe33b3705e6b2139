package kerneltest

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/reference"
)

type indexShape struct {
	name       string
	rows, pos  int
	heads, dim int
	topK       int
	ratio      int
	// small integers: their scores are exact in every order of summation, and many are
	// equal
	exact bool
	rot   int // elements that are rotated, and transformed; 0: none
}

func indexCases() []opCase {
	shapes := []indexShape{
		{name: "sees none, then one", rows: 5, heads: 4, dim: 16, topK: 4, ratio: 4},
		{name: "no more than top k", rows: 40, heads: 8, dim: 32, topK: 10, ratio: 4},
		{name: "around top k", rows: 30, pos: 30, heads: 8, dim: 32, topK: 9, ratio: 4},
		{name: "forced to two", rows: 60, heads: 8, dim: 32, topK: 2, ratio: 4},
		{name: "ties", rows: 64, pos: 300, heads: 5, dim: 9, topK: 13, ratio: 2, exact: true},
		{name: "ties of one", rows: 7, pos: 1000, heads: 1, dim: 1, topK: 1, ratio: 1, exact: true},
		{name: "more than a batch", rows: 150, pos: 800, heads: 3, dim: 8, topK: 50, ratio: 4, exact: true},
		{name: "Flash", rows: 3, pos: 4 * 3000, heads: 64, dim: 128, topK: 512, ratio: 4},
		{name: "V3.2", rows: 3, pos: 2500, heads: 64, dim: 128, topK: 2048, ratio: 1},
		{name: "every position, around top k", rows: 40, pos: 20, heads: 32, dim: 128, topK: 40, ratio: 1},
		{name: "Flash, rotated", rows: 3, pos: 4 * 3000, heads: 64, dim: 128, topK: 512, ratio: 4, rot: 64},
		{name: "8 heads rotated", rows: 2, pos: 900, heads: 8, dim: 128, topK: 20, ratio: 4, rot: 26},
		{name: "small heads rotated", rows: 40, pos: 30, heads: 5, dim: 16, topK: 9, ratio: 2, rot: 6},
		{name: "odd heads", rows: 5, pos: 999, heads: 67, dim: 37, topK: 31, ratio: 3},
	}
	cases := make([]opCase, len(shapes))
	for i, s := range shapes {
		cases[i] = indexCase(s)
	}
	for _, mask := range []bool{false, true} {
		cases = append(cases,
			blocksCase(blocksShape{name: "all blocks", rows: 9, pos: 20, heads: 4, dim: 16, topK: 5, kept: 8, size: 4, mask: mask}),
			blocksCase(blocksShape{name: "around the blocks that are kept", rows: 40, pos: 25, heads: 4, dim: 16, topK: 5, kept: 8, size: 4, mask: mask}),
			blocksCase(blocksShape{name: "few blocks", rows: 30, pos: 500, heads: 3, dim: 8, topK: 7, kept: 3, size: 4, mask: mask}),
			blocksCase(blocksShape{name: "blocks of one", rows: 70, pos: 90, heads: 2, dim: 8, topK: 6, kept: 6, size: 1, mask: mask}),
			blocksCase(blocksShape{name: "true dim", rows: 3, pos: 3000, heads: 32, dim: 128, topK: 64, kept: 100, size: 8, mask: mask}),
		)
	}
	return append(cases, equalScoresCase())
}

func indexCase(s indexShape) opCase {
	return opCase{op: "IndexTopK", name: s.name, rows: s.rows, chunks: []int{1, 4, 128},
		setup: func(m *mem, _ int) func(from, to int) {
			row := s.heads * s.dim
			entries := (s.pos + s.rows) / s.ratio
			draw := func(n int) []float32 {
				if s.exact {
					return m.small(n, 3)
				}
				return m.normal(n, 1)
			}
			q, w, cache := draw(s.rows*row), draw(s.rows*s.heads), toHalves(draw(entries*s.dim))
			scale := float32(0.011048543456039806)
			if s.exact {
				scale = 1
			}
			host := kernels.IndexArgs{
				Q: q, HeadWeight: w, Cache: cache, Rows: s.rows, Pos: s.pos, Heads: s.heads, Dim: s.dim, TopK: s.topK,
				Ratio: s.ratio, Scale: scale,
			}
			a := host
			if s.rot > 0 {
				pos, freqs := turns(s.pos, s.rows, s.rot)
				host.Q, host.Freqs, host.Positions, host.RotDim = slices.Clone(q), freqs, pos, s.rot
				reference.New().RoPE(host.Queries())
				host.Freqs = nil
				a.Freqs, a.Positions, a.RotDim = long(m, freqs), long(m, pos), s.rot
			}
			// one NaN entry after the last visible one: it must never be chosen
			a.Cache = place(m, append(slices.Clone(cache), slices.Repeat([]uint16{poisonHalf}, s.dim)...))
			a.Q, a.HeadWeight = long(m, q), long(m, w)
			selected := blank[int32](m, s.rows*s.topK)
			m.checked("selected", func() ([]float64, []uint32) {
				values, bits := make([]float64, s.rows*s.topK), make([]uint32, s.rows*s.topK)
				for i := range values {
					values[i], bits[i] = float64(selected[i]), uint32(selected[i])
				}
				return values, bits
			}, tolerance{}, func(t *testing.T, got []float64) { checkSelection(t, host, s.exact, got) })
			return func(from, to int) {
				part := a
				part.Q, part.HeadWeight, part.Selected = a.Q[from*row:], a.HeadWeight[from*s.heads:], selected[from*s.topK:]
				part.Rows, part.Pos = to-from, s.pos+from
				if s.rot > 0 {
					part.Positions = a.Positions[from:]
				}
				m.b.IndexTopK(part)
			}
		}}
}

// checkSelection requires ascending numbers of distinct visible entries, then
// -1, and that no entry left out beats a chosen one by more than the error of a
// float32 sum; with exact scores it requires the only right answer.
func checkSelection(t *testing.T, a kernels.IndexArgs, exact bool, got []float64) {
	t.Helper()
	want := make([]int32, a.Rows*a.TopK)
	if exact {
		a.Selected = want
		reference.New().IndexTopK(a)
	}
	for row := range a.Rows {
		scores := reference.IndexScores(a, row)
		picks := got[row*a.TopK : (row+1)*a.TopK]
		n := min(len(scores), a.TopK)
		last := -1.0
		chosen := make([]bool, len(scores))
		worst, size := math.Inf(1), 0.0
		for i, p := range picks[:n] {
			require.True(t, p > last && p < float64(len(scores)), "row %d: selected[%d] is %v after %v, %d entries are seen",
				row, i, p, last, len(scores))
			last = p
			chosen[int(p)] = true
			worst = min(worst, scores[int(p)])
		}
		for i, p := range picks[n:] {
			require.Equal(t, -1.0, p, "row %d: selected[%d]", row, n+i)
		}
		for _, s := range scores {
			size = max(size, math.Abs(s))
		}
		for e, s := range scores {
			require.False(t, !chosen[e] && s > worst+1e-5*size, "row %d: entry %d with score %v is left out, one with %v is in",
				row, e, s, worst)
		}
		if exact {
			for i, p := range picks {
				require.Equal(t, float64(want[row*a.TopK+i]), p, "row %d: selected[%d], equal scores keep the lower entry", row, i)
			}
		}
	}
}

// equalScoresCase: zero queries make all scores equal, zeros of either sign
// where weights are negative, and the first entries win.
func equalScoresCase() opCase {
	const rows, heads, dim, topK = 4, 2, 8, 3
	return opCase{op: "IndexTopK", name: "all equal", rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			q := long(m, make([]float32, rows*heads*dim))
			w := long(m, []float32{1, 1, -1, -1, 1, -1, 0, 0})
			cache := place(m, toHalves(m.normal(40*dim, 1)))
			selected := fresh[int32](m, "selected", rows*topK, tolerance{})
			return func(from, to int) {
				m.b.IndexTopK(kernels.IndexArgs{
					Q: q[from*heads*dim:], HeadWeight: w[from*heads:], Cache: cache, Selected: selected[from*topK:],
					Rows: to - from, Pos: 30 + from, Heads: heads, Dim: dim, TopK: topK, Ratio: 1, Scale: 1,
				})
			}
		}}
}

type blocksShape struct {
	name             string
	rows, pos        int
	heads, dim, topK int
	kept, size       int // blocks, and their entries
	mask             bool
}

// blocksCase keeps blocks, or selects among the entries of random ones that have the newest.
// Scores are small integers, so that every backend must find the only right answer.
func blocksCase(s blocksShape) opCase {
	name := s.name
	if s.mask {
		name += ", masked"
	}
	return opCase{op: "IndexTopK", name: name, rows: s.rows, chunks: []int{1, 4, 128},
		setup: func(m *mem, _ int) func(from, to int) {
			row, entries := s.heads*s.dim, s.pos+s.rows
			q, w, cache := long(m, m.small(s.rows*row, 3)), long(m, m.small(s.rows*s.heads, 3)), place(m, toHalves(m.small(entries*s.dim, 3)))
			selected := fresh[int32](m, "selected", s.rows*s.topK, tolerance{})
			var blocks []int32
			if s.mask {
				blocks = make([]int32, s.rows*s.kept)
				for t := range s.rows {
					fillBlocks(m, blocks[t*s.kept:][:s.kept], (s.pos+t)/s.size+1)
				}
				blocks = long(m, blocks)
			} else {
				blocks = fresh[int32](m, "blocks", s.rows*s.kept, tolerance{})
			}
			return func(from, to int) {
				m.b.IndexTopK(kernels.IndexArgs{
					Q: q[from*row:], HeadWeight: w[from*s.heads:], Cache: cache, Selected: selected[from*s.topK:],
					Rows: to - from, Pos: s.pos + from, Heads: s.heads, Dim: s.dim, TopK: s.topK, Ratio: 1, Scale: 1,
					Blocks: blocks[from*s.kept:], BlocksKept: s.kept, BlockSize: s.size, Mask: s.mask,
				})
			}
		}}
}

// fillBlocks writes random blocks of count, the last among them, and then -1.
func fillBlocks(m *mem, out []int32, count int) {
	all := m.rng.Perm(count - 1)
	all = append([]int{count - 1}, all...)
	all = all[:min(len(all), len(out))]
	slices.Sort(all)
	for i := range out {
		if out[i] = -1; i < len(all) {
			out[i] = int32(all[i])
		}
	}
}
