package kerneltest

import (
	"math"

	"ringmaster/kernels"
)

// attendTolerance: a score is a sum of up to 512 products, the largest of about
// 10, so its error is about 1e-5, and so is the relative error of a weight.
var attendTolerance = tolerance{rel: 3e-5}

type attendShape struct {
	name          string
	rows, pos     int
	heads, dim    int
	value         int // elements of a row's value; 0 means dim
	window, ratio int // a window of 0 is all positions
	noSinks       bool
	noRaw         bool // entries alone
	topK          int  // not 0: Selected is used
	none          bool // Selected names no entry in every other row
	sinkHigh      bool
	rot           int       // elements that are rotated back; 0: none
	turn, norm    bool      // the queries are rotated first, and normed
	q             float64   // standard deviation of the queries; 0 means 2
	tol           tolerance // zero means attendTolerance
}

func attendCases() []opCase {
	shapes := []attendShape{
		{name: "window only", rows: 300, heads: 4, dim: 64, window: 128},
		{name: "first token", rows: 1, heads: 5, dim: 33, window: 128},
		{name: "window of one", rows: 4, heads: 2, dim: 16, window: 1},
		{name: "ratio 128", rows: 260, heads: 3, dim: 48, window: 128, ratio: 128},
		{name: "entries at 3 and 7", rows: 9, heads: 4, dim: 64, window: 128, ratio: 4},
		{name: "entry at 127", rows: 4, pos: 125, heads: 4, dim: 64, window: 128, ratio: 128},
		{name: "selected", rows: 140, pos: 200, heads: 8, dim: 64, window: 128, ratio: 4, topK: 20},
		{name: "two selected", rows: 9, heads: 4, dim: 64, window: 4, ratio: 4, topK: 2},
		{name: "none selected", rows: 6, pos: 40, heads: 4, dim: 64, window: 16, ratio: 4, topK: 8, none: true},
		{name: "Flash", rows: 3, pos: 4000, heads: 64, dim: 512, window: 128, ratio: 4, topK: 512},
		{name: "Flash, rotated back", rows: 3, pos: 4000, heads: 64, dim: 512, window: 128, ratio: 4, topK: 512, rot: 64},
		{name: "many rows rotated back", rows: 300, heads: 4, dim: 64, window: 128, rot: 64},
		{name: "an odd number of heads rotated back", rows: 17, pos: 5, heads: 7, dim: 37, window: 6, ratio: 3, rot: 12},
		{name: "short values rotated back", rows: 2, pos: 3000, heads: 16, dim: 576, value: 64, noSinks: true, rot: 8},
		{name: "Flash, queries normed and rotated", rows: 3, pos: 4000, heads: 64, dim: 512, window: 128, ratio: 4, topK: 512, rot: 64, turn: true, norm: true},
		{name: "queries rotated, the last of 24", rows: 2, pos: 900, heads: 24, dim: 64, window: 128, ratio: 4, rot: 64, turn: true},
		{name: "latent queries rotated, short values", rows: 2, pos: 3000, heads: 16, dim: 576, value: 64, noSinks: true, rot: 8, turn: true, norm: true},
		{name: "256 normed", rows: 2, pos: 700, heads: 16, dim: 256, window: 128, ratio: 4, rot: 34, turn: true, norm: true},
		{name: "odd queries normed and rotated", rows: 17, pos: 5, heads: 7, dim: 37, window: 6, ratio: 3, rot: 12, turn: true, norm: true},
		{name: "many rows of queries rotated", rows: 300, heads: 8, dim: 64, window: 128, rot: 64, turn: true, norm: true},
		{name: "Pro heads", rows: 2, pos: 1300, heads: 128, dim: 512, window: 128, ratio: 128},
		{name: "odd sizes", rows: 17, pos: 5, heads: 7, dim: 37, window: 6, ratio: 3},
		{name: "long history", rows: 2, pos: 5000, heads: 2, dim: 32, window: 128, ratio: 4},
		// Scores in the thousands, because an exponential overflows unless the largest is
		// subtracted first. Their error, about 1e-3, shows in the weights.
		{name: "large scores", rows: 20, heads: 4, dim: 64, window: 128, ratio: 4, q: 3000, tol: tolerance{rel: 2e-2}},
		// A sink of 1000 above all scores leaves no weight for the rows, and
		// must not produce 0/0.
		{name: "sink above all", rows: 5, heads: 4, dim: 64, window: 8, sinkHigh: true},
		{name: "all positions", rows: 70, heads: 8, dim: 64, noSinks: true},
		{name: "all positions, with sinks", rows: 9, pos: 30, heads: 3, dim: 40},
		{name: "window without sinks", rows: 40, heads: 5, dim: 64, window: 16, noSinks: true},
		{name: "latent rows", rows: 33, pos: 120, heads: 16, dim: 576, value: 512, noSinks: true},
		{name: "latent rows, long", rows: 2, pos: 3000, heads: 128, dim: 576, value: 512, noSinks: true},
		{name: "latent rows, one token", rows: 1, heads: 20, dim: 576, value: 512, noSinks: true},
		{name: "odd values", rows: 13, pos: 7, heads: 7, dim: 61, value: 37, noSinks: true},
		{name: "one value", rows: 3, pos: 2, heads: 8, dim: 64, value: 1, window: 4},
		{name: "values of entries", rows: 20, pos: 200, heads: 8, dim: 112, value: 64, window: 16, ratio: 4, topK: 20},
		{name: "selected positions", rows: 30, pos: 90, heads: 16, dim: 576, value: 512, ratio: 1, topK: 64, noSinks: true, noRaw: true},
		{name: "selected positions, one token", rows: 1, pos: 2200, heads: 128, dim: 576, value: 512, ratio: 1, topK: 2048, noSinks: true, noRaw: true},
		{name: "fewer positions than are selected", rows: 12, heads: 8, dim: 64, value: 48, ratio: 1, topK: 20, noSinks: true, noRaw: true},
		{name: "one of all positions", rows: 9, pos: 300, heads: 7, dim: 37, value: 20, ratio: 1, topK: 1, noRaw: true},
		{name: "all positions as entries", rows: 20, pos: 40, heads: 5, dim: 64, ratio: 1, noSinks: true, noRaw: true},
		// Without a sink the largest score is the only reference.
		{name: "large scores without sinks", rows: 20, heads: 4, dim: 64, q: 3000, noSinks: true, tol: tolerance{rel: 2e-2}},
	}
	cases := make([]opCase, len(shapes))
	for i, s := range shapes {
		cases[i] = attendCase(s)
	}
	return cases
}

// attendCase stores the raw rows of each chunk and attends to them, in a ring
// just long enough, with all other slots NaN at first. Compressed entries that
// a call must not see are NaN.
func attendCase(s attendShape) opCase {
	return opCase{op: "Attend", name: s.name, rows: s.rows, repeatable: !s.turn, chunks: oddChunks,
		setup: func(m *mem, chunk int) func(from, to int) {
			tol := s.tol
			if tol == (tolerance{}) {
				tol = attendTolerance
			}
			if s.q == 0 {
				s.q = 2
			}
			ringRows, before := s.window-1+chunk, s.window-1
			switch {
			case s.noRaw:
				ringRows, before = 0, 0
			case s.window == 0:
				ringRows, before = s.pos+s.rows, s.pos
			}
			value := s.value
			if value == 0 {
				value = s.dim
			}
			row, outRow := s.heads*s.dim, s.heads*value
			q, kv := long(m, m.normal(s.rows*row, s.q)), long(m, m.normal(s.rows*s.dim, 1))
			sinks := m.normal(s.heads, 2)
			if s.sinkHigh {
				for h := range sinks {
					sinks[h] = 1000
				}
			}
			var sink []float32
			if !s.noSinks {
				sink = long(m, sinks)
			}
			var ring []uint16
			if ringRows > 0 {
				ring = blank[uint16](m, ringRows*s.dim)
			}
			earlier := toHalves(m.normal((before+1)*s.dim, 1))
			for i := range before {
				if p := s.pos - 1 - i; p >= 0 {
					copy(ring[p%ringRows*s.dim:][:s.dim], earlier[i*s.dim:])
				}
			}
			var compressed []uint16
			var selected []int32
			if s.ratio > 0 {
				compressed = long(m, toHalves(m.normal((s.pos+s.rows)/s.ratio*s.dim, 1)))
			}
			if s.topK > 0 {
				selected = place(m, m.selection(&s))
			}
			out := fresh[float32](m, "out", s.rows*outRow, tol)
			var pos []int32
			var freqs []float32
			if s.rot > 0 {
				pos, freqs = turns(s.pos, s.rows, s.rot)
				pos, freqs = long(m, pos), long(m, freqs)
			}
			return func(from, to int) {
				n := to - from
				if ring != nil {
					m.b.StoreKV(ring, kv[from*s.dim:], n, s.dim, s.pos+from, ringRows)
				}
				a := kernels.AttendArgs{
					Q: q[from*row:], Raw: ring, Compressed: compressed, Sinks: sink, Out: out[from*outRow:],
					Rows: n, Pos: s.pos + from, Heads: s.heads, HeadDim: s.dim, ValueDim: value, Window: s.window, RingRows: ringRows,
					Ratio: s.ratio, TopK: s.topK, Scale: 0.044194173824159216,
				}
				if s.rot > 0 {
					a.Freqs, a.Positions, a.RotDim = freqs, pos[from:], s.rot
					a.RotateQ, a.NormQ, a.Eps = s.turn, s.norm, 1e-6
				}
				if selected != nil {
					a.Selected = selected[from*s.topK:]
				}
				m.b.Attend(a)
			}
		}}
}

// turns are the positions of rows and the frequencies of rot elements.
func turns(first, rows, rot int) (pos []int32, freqs []float32) {
	for t := range rows {
		pos = append(pos, int32(first+t))
	}
	for i := range rot / 2 {
		freqs = append(freqs, float32(math.Pow(160000, -2*float64(i)/float64(rot))))
	}
	return pos, freqs
}

// selection draws up to topK of the entries each token sees, ascending,
// followed by -1 and then a number that is not an index.
func (m *mem) selection(s *attendShape) []int32 {
	all := make([]int32, 0, s.rows*s.topK)
	for t := range s.rows {
		n := (s.pos + t + 1) / s.ratio
		left := min(s.topK, n)
		if s.none && t%2 == 0 {
			left = 0
		}
		row := make([]int32, 0, s.topK)
		for e := 0; left > 0; e++ {
			if m.rng.IntN(n-e) < left {
				row = append(row, int32(e))
				left--
			}
		}
		for len(row) < s.topK {
			row = append(row, -1)
		}
		all = append(all, row...)
	}
	return all
}
