package kerneltest

import (
	"fmt"
	"math"

	"ringmaster/kernels"
)

// oneRounding is for ops that compute in float32 what the reference computes in
// float64, with no more than a few roundings per element; sums of up to 2^14
// terms in lanes are within it too, because their errors grow with the square
// root of the length of a lane.
var oneRounding = tolerance{rel: 1e-6}

// someRoundings is for a norm: a sum, a square root and two products.
var someRoundings = tolerance{rel: 2e-6}

// widths cover whole vectors, tails, and less than one vector.
var widths = []int{1, 3, 17, 64, 100, 512, 4096}

func denseCases() []opCase {
	var cases []opCase
	for _, cols := range widths {
		for _, weighted := range []bool{false, true} {
			cases = append(cases, opCase{
				op: "RMSNorm", name: fmt.Sprintf("%d weight=%v", cols, weighted), rows: 5,
				setup: func(m *mem, _ int) func(from, to int) {
					x := long(m, m.normal(5*cols, 3))
					var w []float32
					if weighted {
						w = long(m, m.normal(cols, 1))
					}
					out := fresh[float32](m, "out", 5*cols, someRoundings)
					return func(from, to int) { m.b.RMSNorm(out[from*cols:], x[from*cols:], w, to-from, cols, 1e-6) }
				},
			})
		}
	}
	cases = append(cases, opCase{
		op: "RMSNorm", name: "in place, tiny and zero rows", rows: 3,
		setup: func(m *mem, _ int) func(from, to int) {
			data := m.normal(3*96, 1e-4) // here eps dominates
			clear(data[96 : 2*96])
			x := long(m, data)
			result(m, "x", x, 3*96, someRoundings)
			return func(from, to int) { m.b.RMSNorm(x[from*96:], x[from*96:], nil, to-from, 96, 1e-6) }
		},
	})
	cases = append(cases, layerNormCases()...)
	cases = append(cases, ropeCases()...)
	for _, dim := range []int{1, 2, 8, 128, 512} {
		cases = append(cases, opCase{
			op: "Hadamard", name: fmt.Sprint(dim), rows: 7,
			setup: func(m *mem, _ int) func(from, to int) {
				x := long(m, m.normal(7*dim, 1))
				result(m, "x", x, 7*dim, oneRounding)
				return func(from, to int) { m.b.Hadamard(x[from*dim:], to-from, dim) }
			},
		})
	}
	return cases
}

// layerNormCases have rows of any width, some far from zero, where a variance by the
// mean of squares would be lost, and rows that do not vary.
func layerNormCases() []opCase {
	shapes := []struct {
		name        string
		cols        int
		middle, std float64
		inPlace     bool
		tol         tolerance
	}{
		{"one element", 1, 2, 1, false, someRoundings},
		{"odd width", 37, 0, 3, true, someRoundings},
		{"keys of an indexer", 128, 0.3, 1, true, someRoundings},
		{"wide", 4099, -1, 2, false, someRoundings},
		{"tiny", 96, 0, 1e-4, false, someRoundings}, // eps dominates
		{"far from zero", 128, 1000, 1, false, tolerance{rel: 2e-4}},
		{"all alike", 64, 3, 0, true, someRoundings},
	}
	var cases []opCase
	for _, s := range shapes {
		const rows = 5
		cases = append(cases, opCase{
			op: "LayerNorm", name: s.name, rows: rows,
			setup: func(m *mem, _ int) func(from, to int) {
				data := m.normal(rows*s.cols, s.std)
				for i := range data {
					data[i] += float32(s.middle)
				}
				x, w, bias := long(m, data), long(m, m.normal(s.cols, 1)), long(m, m.normal(s.cols, 1))
				out := x
				if s.inPlace {
					result(m, "x", x, rows*s.cols, s.tol)
				} else {
					out = fresh[float32](m, "out", rows*s.cols, s.tol)
				}
				return func(from, to int) {
					m.b.LayerNorm(out[from*s.cols:], x[from*s.cols:], w, bias, to-from, s.cols, 1e-6)
				}
			},
		})
	}
	return cases
}

// norms and slots say that a case has a weight of the norm, and a ring.
var norms, slots = []float32{}, []uint16{}

// ropeCases reach position 10^6, where a product in double or an angle reduced
// in float32 would give a different rotation.
func ropeCases() []opCase {
	shapes := []struct {
		name            string
		heads, dim, rot int
		first, step     int
		turn            kernels.RoPEArgs // Front, Halves, Inverse, Magnitude, Norm, Hadamard
	}{
		{"64 of 512", 8, 512, 64, 0, 1, kernels.RoPEArgs{}},
		{"inverse", 8, 512, 64, 5, 3, kernels.RoPEArgs{Inverse: true}},
		{"large positions", 2, 128, 64, 999_983, 4001, kernels.RoPEArgs{}},
		{"all of an odd head count", 3, 32, 32, 77, 1, kernels.RoPEArgs{}},
		{"nothing to turn", 2, 16, 0, 9, 1, kernels.RoPEArgs{}},
		{"a tail of an odd width", 1, 67, 6, 1234, 17, kernels.RoPEArgs{}},
		{"the front of the heads", 5, 128, 64, 3000, 7, kernels.RoPEArgs{Front: true}},
		{"halves of the front", 64, 128, 64, 40_000, 1, kernels.RoPEArgs{Front: true, Halves: true}},
		{"halves of a tail", 3, 67, 26, 99, 5, kernels.RoPEArgs{Halves: true}},
		{"halves of whole heads, inverse", 17, 24, 24, 8, 3, kernels.RoPEArgs{Front: true, Halves: true, Inverse: true}},
		{"halves of more than a block of pairs", 2, 300, 280, 1, 11, kernels.RoPEArgs{Halves: true}},
		{"of another magnitude", 3, 67, 64, 4000, 7, kernels.RoPEArgs{Magnitude: 1.3688879}},
		{"halves of another magnitude, inverse", 2, 128, 64, 1, 3, kernels.RoPEArgs{Front: true, Halves: true, Inverse: true, Magnitude: 0.5}},
		{"normed queries", 8, 512, 64, 5000, 3, kernels.RoPEArgs{Norm: true}},
		{"normed, odd width", 3, 67, 26, 99, 5, kernels.RoPEArgs{Norm: true, Halves: true}},
		{"a normed key", 1, 512, 64, 130, 1, kernels.RoPEArgs{Norm: true, NormWeight: norms, Ring: slots}},
		{"an odd normed key", 1, 67, 6, 12, 1, kernels.RoPEArgs{Norm: true, NormWeight: norms, Ring: slots}},
		{"stored as it is turned", 1, 64, 32, 3, 1, kernels.RoPEArgs{Ring: slots}},
		{"transformed queries of an indexer", 5, 128, 64, 70_000, 1, kernels.RoPEArgs{Hadamard: true}},
		{"everything", 1, 256, 64, 70, 1, kernels.RoPEArgs{Norm: true, NormWeight: norms, Hadamard: true, Ring: slots}},
		{"normed and not turned", 2, 16, 0, 9, 1, kernels.RoPEArgs{Norm: true, NormWeight: norms}},
		{"wider than threadgroup memory", 1, 8192, 64, 9, 1, kernels.RoPEArgs{Norm: true, NormWeight: norms, Hadamard: true, Ring: slots}},
	}
	var cases []opCase
	for _, s := range shapes {
		const rows, ringRows = 6, 8
		op := "RoPE"
		if s.turn.Norm { // its order of sums is that of RMSNorm
			op = "RoPE, normed"
		}
		cases = append(cases, opCase{
			op: op, name: s.name, rows: rows,
			setup: func(m *mem, _ int) func(from, to int) {
				row := s.heads * s.dim
				x := long(m, m.normal(rows*row, 1))
				pos := make([]int32, rows)
				for t := range pos {
					pos[t] = int32(s.first + t*s.step)
				}
				freqs := make([]float32, s.rot/2)
				for i := range freqs {
					freqs[i] = float32(math.Pow(160000, -2*float64(i)/float64(max(s.rot, 1))))
				}
				p, f := long(m, pos), long(m, freqs)
				a := s.turn
				a.Freqs, a.Heads, a.HeadDim, a.RotDim, a.Eps = f, s.heads, s.dim, s.rot, 1e-6
				tol := oneRounding
				if a.Norm {
					tol = someRoundings
				}
				if a.NormWeight != nil {
					a.NormWeight = long(m, m.normal(s.dim, 1))
				}
				result(m, "x", x, rows*row, tol)
				if a.Ring != nil {
					a.Ring, a.RingRows = blank[uint16](m, ringRows*s.dim), ringRows
					result(m, "ring", a.Ring, ringRows*s.dim, halfOf)
				}
				return func(from, to int) {
					a := a
					a.X, a.Pos, a.Rows, a.RingPos = x[from*row:], p[from:], to-from, s.first+from
					m.b.RoPE(a)
				}
			},
		})
	}
	return cases
}
