package kerneltest

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// scaledCases: products of weights with scales, for one token, few and many. Scales of expert
// matrices are one for each or one for all.
func scaledCases() []opCase {
	var cases []opCase
	for _, typ := range []gguf.Type{gguf.NVFP4, gguf.Q4_K, gguf.BF16} {
		cases = append(cases, scaledCase(typ, 1), scaledCase(typ, 7), scaledCase(typ, 40))
		for _, scales := range []int{1, 8} {
			cases = append(cases, scaledGateUpCase(typ, scales, 11), scaledGateUpCase(typ, scales, 70),
				scaledDownCase(typ, scales, 11), scaledDownCase(typ, scales, 70))
		}
	}
	return append(cases, scaledColumnsCase(gguf.NVFP4), scaledColumnsCase(gguf.Q8_0))
}

// scaled is w with n random scales.
func (m *mem) scaled(w kernels.Weight, n int) kernels.Weight {
	var data []byte
	for range n {
		data = appendPlain(data, gguf.F32, float32(0.25+m.rng.Float64())*float32(1-2*m.rng.IntN(2)))
	}
	w.Scales = asFloats(m.mapping(data))
	return w
}

func scaledCase(typ gguf.Type, rows int) opCase {
	const cols, n = 512, 67
	return opCase{op: "MatMul", name: fmt.Sprintf("%s scaled, %d", typ, rows), rows: rows, chunks: []int{1, 2, 5},
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			plain := m.weight(typ, 1, n, cols, 0.1)
			w := m.scaled(plain, 1)
			out := fresh[float32](m, "out", rows*n, exactOr(typ, quantisedTolerance))
			beside := fresh[float32](m, "beside", rows*n, exactOr(typ, quantisedTolerance))
			return func(from, to int) {
				m.b.MatMul(x[from*cols:], to-from, kernels.Product{W: w, Out: out[from*n:]}, kernels.Product{W: plain, Out: beside[from*n:]})
			}
		}}
}

// scaledColumnsCase: groups of columns and of rows have the scale of their matrix.
func scaledColumnsCase(typ gguf.Type) opCase {
	const rows, cols, groups, n = 5, 1024, 4, 12
	return opCase{op: "MatMulGrouped", name: typ.String() + " scaled", rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			w := m.scaled(m.weight(typ, 1, n, cols, 0.1), 1)
			out := fresh[float32](m, "out", rows*groups*n, exactOr(typ, quantisedTolerance))
			y := long(m, m.normal(rows*groups*cols, 1))
			tall := fresh[float32](m, "tall", rows*n, exactOr(typ, quantisedTolerance))
			return func(from, to int) {
				m.b.MatMulGrouped(out[from*groups*n:], x[from*cols:], to-from, w.ColumnGroups(groups))
				m.b.MatMulGrouped(tall[from*n:], y[from*groups*cols:], to-from, w.RowGroups(groups))
			}
		}}
}

func scaledGateUpCase(typ gguf.Type, scales, rows int) opCase {
	const used, experts, cols, width = 3, 8, 256, 40
	return opCase{op: "ExpertGateUp", name: fmt.Sprintf("%s, %d scales, %d", typ, scales, rows), rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			gate, up := m.weight(typ, experts, width, cols, 0.1), m.weight(typ, experts, width, cols, 0.1)
			a := m.expertGroups(rows, used, experts, 1, 7)
			a.Start, a.End = 2, 6
			mid := fresh[float32](m, "mid", rows*used*width, exactOr(typ, expertTolerance))
			some := fresh[float32](m, "some", rows*used*width, exactOr(typ, expertTolerance))
			gates, ups := m.scaled(gate, scales), m.scaled(up, scales)
			return func(int, int) {
				m.b.ExpertGateUp(mid, x, gates, ups, 10, a)
				m.b.ExpertGateUp(some, x, gate, ups, 0, a)
			}
		}}
}

func scaledDownCase(typ gguf.Type, scales, rows int) opCase {
	const used, experts, cols, width = 3, 8, 256, 40
	return opCase{op: "ExpertDown", name: fmt.Sprintf("%s, %d scales, %d", typ, scales, rows), rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			a := m.expertGroups(rows, used, experts, 1, 7)
			mid := long(m, m.normal(rows*used*cols, 1))
			w := m.scaled(m.weight(typ, experts, width, cols, 0.1), scales)
			out := fresh[float32](m, "out", rows*used*width, exactOr(typ, quantisedTolerance))
			return func(int, int) { m.b.ExpertDown(out, mid, w, a) }
		}}
}
