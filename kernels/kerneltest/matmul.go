package kerneltest

import (
	"fmt"
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

func matmulCases() []opCase {
	var cases []opCase
	for _, typ := range Types {
		block := typ.BlockElements()
		cols := []int{block, 3 * block, 1024}
		if block == 1 {
			cols = []int{1, 37, 1024}
		}
		for _, k := range cols {
			cases = append(cases, matmulCase(typ, k, 33, 9))
		}
		cases = append(cases, embedCase(typ, 2*max(block, 19)), groupedCase(typ, 2*max(block, 19)),
			columnsCase(typ, 3*max(block, 19), 3, 5, 3))
	}
	for i, clamp := range []float32{0, 1e-6, 10} {
		cases = append(cases, hiddenCase(gguf.Q8_0, gguf.Q8_0, 512, 17+i, clamp), hiddenCase(gguf.F32, gguf.F32, 37, 5+i, clamp))
	}
	cases = append(cases, normedCase(1024, gguf.Q8_0), normedCase(1536, gguf.Q8_0, gguf.F16), normedCase(37, gguf.F32, gguf.F32),
		normedCase(1024, gguf.Q4_K, gguf.F16, gguf.Q8_0), normedCase(512, gguf.F16, gguf.F16, gguf.F16, gguf.F16, gguf.F16, gguf.F16, gguf.F16))
	cases = append(cases, hiddenEdges(), hiddenCase(gguf.Q8_0, gguf.Q8_0, 4096, 40, 10), hiddenCase(gguf.Q4_K, gguf.Q4_K, 256, 1, 10),
		hiddenCase(gguf.F16, gguf.F16, 37, 33, 1), hiddenCase(gguf.Q8_0, gguf.F16, 1024, 9, 10), hiddenCase(gguf.Q4_K, gguf.Q8_0, 512, 9, 10))
	return append(append(cases, scaledCases()...), severalCase(gguf.Q8_0, gguf.F16, gguf.Q4_K, gguf.F32, gguf.IQ2XXS),
		severalCase(gguf.Q8_0, gguf.Q8_0, gguf.F16, gguf.F16, gguf.F16, gguf.F16, gguf.F16),
		severalCase(gguf.F32, gguf.F32, gguf.Q8_0, gguf.Q8_0, gguf.BF16, gguf.Q8_0, gguf.BF16, gguf.Q8_0, gguf.Q8_0, gguf.Q8_0, gguf.Q8_0, gguf.Q8_0, gguf.Q8_0), matmulCase(gguf.Q8_0, 4096, 7, 40), matmulCase(gguf.F16, 4096, 7, 40),
		columnsCase(gguf.Q8_0, 2048, 4, 70, 40), columnsCase(gguf.Q4_K, 2048, 4, 33, 5), columnsCase(gguf.Q8_0, 640, 4, 20, 9),
		columnsCase(gguf.F16, 2048, 4, 70, 40), columnsCase(gguf.Q8_0, 256, 8, 70, 40), columnsCase(gguf.Q5_1, 384, 6, 33, 5))
}

func matmulCase(typ gguf.Type, cols, n, rows int) opCase {
	return opCase{op: "MatMul", name: fmt.Sprintf("%s %dx%d", typ, n, cols), rows: rows, chunks: []int{1, 2, 5},
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			w := m.weight(typ, 1, n, cols, 0.1)
			out := fresh[float32](m, "out", rows*n, exactOr(typ, quantisedTolerance))
			return func(from, to int) {
				m.b.MatMul(x[from*cols:], to-from, kernels.Product{W: w, Out: out[from*n:]})
			}
		}}
}

// severalCase: products of one x with weights of different heights. An all-zero row of x
// gives zeros.
func severalCase(types ...gguf.Type) opCase {
	const rows, cols = 6, 512
	var heights []int
	for i := range types {
		heights = append(heights, []int{1, 5, 64, 3, 17}[i%5])
	}
	return opCase{op: "MatMul", name: fmt.Sprint("several ", types), rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			data := m.normal(rows*cols, 1)
			clear(data[cols : 2*cols])
			x := long(m, data)
			products := make([]kernels.Product, len(types))
			for i, typ := range types {
				products[i] = kernels.Product{
					W:   m.weight(typ, 1, heights[i], cols, 0.1),
					Out: fresh[float32](m, fmt.Sprint(i, " ", typ), rows*heights[i], exactOr(typ, quantisedTolerance)),
				}
			}
			return func(from, to int) {
				part := make([]kernels.Product, len(products))
				for i, p := range products {
					part[i] = kernels.Product{W: p.W, Out: p.Out[from*heights[i]:]}
				}
				m.b.MatMul(x[from*cols:], to-from, part...)
			}
		}}
}

// normedCase: products of one x that is normed first.
func normedCase(cols int, types ...gguf.Type) opCase {
	const rows, n = 5, 21
	return opCase{op: "NormMatMul", name: fmt.Sprint(cols, " ", types), rows: rows, chunks: []int{1, 2},
		setup: func(m *mem, _ int) func(from, to int) {
			x, norm := long(m, m.normal(rows*cols, 3)), long(m, m.normal(cols, 1))
			products := make([]kernels.Product, len(types))
			for i, typ := range types {
				tol := exactOr(typ, quantisedTolerance)
				tol.rel += someRoundings.rel
				products[i] = kernels.Product{W: m.weight(typ, 1, n, cols, 0.1), Out: fresh[float32](m, fmt.Sprint(i, " ", typ), rows*n, tol)}
			}
			return func(from, to int) {
				part := slices.Clone(products)
				for i := range part {
					part[i].Out = part[i].Out[from*n:]
				}
				m.b.NormMatMul(x[from*cols:], norm, 1e-6, to-from, part...)
			}
		}}
}

// swigluTolerance: an exponential of 2 ulp, a division and two products.
var swigluTolerance = tolerance{rel: 1e-6}

// hiddenCase: hidden activations between two products of the same x, the first of which is that
// of a router.
func hiddenCase(gate, up gguf.Type, cols, width int, clamp float32) opCase {
	const rows, experts = 10, 6
	return opCase{op: "MatMul", name: fmt.Sprintf("hidden %s %s %dx%d clamp=%g", gate, up, width, cols, clamp), rows: rows, chunks: []int{1, 2, 9},
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			router, g, u := m.weight(gguf.F16, 1, experts, cols, 0.1), m.weight(gate, 1, width, cols, 0.5), m.weight(up, 1, width, cols, 0.5)
			tol := exactOr(gate, expertTolerance)
			if tol.rms == 0 {
				tol = exactOr(up, expertTolerance)
			}
			logits := fresh[float32](m, "logits", rows*experts, exactOr(gguf.F16, quantisedTolerance))
			hidden := fresh[float32](m, "hidden", rows*width, tol)
			last := fresh[float32](m, "last", rows*width, exactOr(gate, quantisedTolerance))
			space := blank[float32](m, rows*width)
			return func(from, to int) {
				m.b.MatMul(x[from*cols:], to-from, kernels.Product{W: router, Out: logits[from*experts:]},
					kernels.Product{W: g, Out: hidden[from*width:], Up: u, UpOut: space[from*width:], Clamp: clamp}, kernels.Product{W: g, Out: last[from*width:]})
			}
		}}
}

// hiddenEdges: with clamp 10, g = 20 and u = -20 give silu(10)*(-10): the clamp comes
// before silu, and the gate has no lower clamp. The matrices have one column.
func hiddenEdges() opCase {
	gates := []float32{20, 20, -20, -100, 10, 0, -0.5, 1e30, -1e30, 1e-30}
	ups := []float32{-20, 20, 20, 20, 10, 5, 0, 3, 3, 1e-3}
	return opCase{op: "MatMul", name: "hidden edges", rows: 9, chunks: []int{1},
		setup: func(m *mem, _ int) func(from, to int) {
			n := len(gates)
			gate, up := m.plain(gguf.F32, n, 1, gates), m.plain(gguf.F32, n, 1, ups)
			x, out, space := blank[float32](m, 9), blank[float32](m, 9*n), blank[float32](m, 9*n)
			for i := range x[:9] {
				x[i] = 1
			}
			// an output each, because the sizes differ so much
			for i := range gates {
				result(m, fmt.Sprintf("g=%g u=%g", gates[i], ups[i]), out[i:], 1, swigluTolerance)
			}
			return func(from, to int) {
				m.b.MatMul(x[from:], to-from, kernels.Product{W: gate, Out: out[from*n:], Up: up, UpOut: space[from*n:], Clamp: 10})
			}
		}}
}

// embedCase: rows are converted, which is exact for every type.
func embedCase(typ gguf.Type, cols int) opCase {
	return opCase{op: "Embed", name: typ.String(), rows: 5,
		setup: func(m *mem, _ int) func(from, to int) {
			w := m.weight(typ, 1, 12, cols, 0.1)
			ids := place(m, []int32{11, 0, 5, 5, 1})
			out := fresh[float32](m, "out", 5*cols, tolerance{})
			return func(from, to int) { m.b.Embed(out[from*cols:], w, ids[from:to]) }
		}}
}

// groupedCase: a matrix as a stack of groups of rows, all of it or some of its groups.
func groupedCase(typ gguf.Type, cols int) opCase {
	const rows, groups, n = 4, 3, 7
	return opCase{op: "MatMulGrouped", name: typ.String(), rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*groups*cols, 1))
			w := m.weight(typ, 1, groups*n, cols, 0.1).RowGroups(groups)
			out := fresh[float32](m, "out", rows*groups*n, exactOr(typ, quantisedTolerance))
			some := fresh[float32](m, "some", rows*(groups-1)*n, exactOr(typ, quantisedTolerance))
			return func(from, to int) {
				m.b.MatMulGrouped(out[from*groups*n:], x[from*groups*cols:], to-from, w)
				m.b.MatMulGrouped(some[from*(groups-1)*n:], x[from*(groups-1)*cols:], to-from, w.SliceRange(1, groups))
			}
		}}
}

// columnsCase: a matrix as a stack of groups of columns, and parts of it: rows,
// columns and groups. Where a part begins in a block of 256 columns differs.
func columnsCase(typ gguf.Type, cols, groups, n, rows int) opCase {
	return opCase{op: "MatMulGrouped", name: fmt.Sprintf("%s columns %dx%d in %d", typ, n, cols, groups), rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			w, each := m.weight(typ, 1, n, cols, 0.1), cols/groups
			of := func(name string, n int) []float32 {
				return fresh[float32](m, name, rows*n, exactOr(typ, quantisedTolerance))
			}
			all, last, part, few := of("all", groups*n), of("last", n), of("part", n), of("rows", n-1)
			stack := w.ColumnGroups(groups)
			return func(from, to int) {
				m.b.MatMulGrouped(all[from*groups*n:], x[from*cols:], to-from, stack)
				m.b.MatMulGrouped(last[from*n:], x[from*each:], to-from, stack.SliceRange(groups-1, groups))
				m.b.MatMul(x[from*(cols-each):], to-from, kernels.Product{W: w.ColumnRange(each, cols), Out: part[from*n:]})
				m.b.MatMul(x[from*cols:], to-from, kernels.Product{W: w.RowRange(1, n), Out: few[from*(n-1):]})
			}
		}}
}

func expertProductCases() []opCase {
	var cases []opCase
	for _, typ := range Types {
		cases = append(cases, gateUpCase(typ, 256, 40, 10, false), downCase(typ, 256, 40), downSumCase(typ, 512, 13, 4, true))
	}
	return append(cases,
		gateUpCase(gguf.Q4_K, 512, 24, 0, false), gateUpCase(gguf.MXFP4, 256, 24, 10, true), gateUpCase(gguf.F16, 37, 5, 1, true),
		downCase(gguf.F32, 5, 3), downSumCase(gguf.F16, 37, 5, 2, false), downSumCase(gguf.Q2_K, 256, 33, 11, true), downSumCase(gguf.Q4_K, 2048, 40, 8, false))
}

// expertGroups draws the experts of each token and lists the slots of the local
// ones. One of these slots has weight 0.
func (m *mem) expertGroups(rows, used, experts, start, end int) kernels.ExpertArgs {
	ids := make([]int32, 0, rows*used)
	for range rows {
		for _, e := range m.rng.Perm(experts)[:used] {
			ids = append(ids, int32(e))
		}
	}
	weights := m.normal(rows*used, 1)
	var slots []int32
	offsets := make([]int32, experts+1)
	for e := range experts {
		offsets[e] = int32(len(slots))
		for slot, id := range ids {
			if int(id) == e && e >= start && e < end {
				slots = append(slots, int32(slot))
			}
		}
	}
	offsets[experts] = int32(len(slots))
	for slot, id := range ids {
		if int(id) < start || int(id) >= end {
			weights[slot] = 0
		}
	}
	weights[slots[len(slots)/2]] = 0
	for len(slots) < rows*used {
		slots = append(slots, poisonI32)
	}
	return kernels.ExpertArgs{
		Groups:  kernels.ExpertGroups{Offsets: place(m, offsets), Slots: place(m, slots)},
		Weights: place(m, weights), Rows: rows, Used: used, Experts: experts, End: experts,
	}
}

// gateUpCase: experts 0 and 7 are remote and their weights are unusable; a slot
// outside the groups keeps the NaN that was there, one in the groups that
// belongs to a remote expert becomes zeros.
func gateUpCase(typ gguf.Type, cols, width int, clamp float32, interleaved bool) opCase {
	const rows, used, experts = 11, 3, 8
	return opCase{op: "ExpertGateUp", name: fmt.Sprintf("%s %dx%d clamp=%g interleaved=%v", typ, width, cols, clamp, interleaved), rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			gate, up := m.weight(typ, experts, width, cols, 0.1), m.weight(typ, experts, width, cols, 0.1)
			if interleaved { // gate rows, then up rows, in one tensor
				both := m.weight(typ, experts, 2*width, cols, 0.1)
				half := width * typ.RowBytes(cols)
				gate, up = both, both
				gate.Rows, up.Rows = width, width
				up.Data = both.Data[half:]
			}
			a := m.expertGroups(rows, used, experts, 1, 7)
			a.Start, a.End = 2, 6 // experts 1 and 6 are in the groups, but remote
			mid := fresh[float32](m, "mid", rows*used*width, exactOr(typ, expertTolerance))
			return func(int, int) { m.b.ExpertGateUp(mid, x, gate, up, clamp, a) }
		}}
}

// downCase: the mid rows of slots that are not computed are NaN.
func downCase(typ gguf.Type, cols, width int) opCase {
	const rows, used, experts = 11, 3, 8
	return opCase{op: "ExpertDown", name: fmt.Sprintf("%s %dx%d", typ, width, cols), rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			a := m.expertGroups(rows, used, experts, 1, 7)
			data := m.normal(rows*used*cols, 1)
			for slot, w := range a.Weights {
				if w == 0 {
					for i := range cols {
						data[slot*cols+i] = poisonF32
					}
				}
			}
			mid := long(m, data)
			w := m.weight(typ, experts, width, cols, 0.1)
			out := fresh[float32](m, "out", rows*used*width, exactOr(typ, quantisedTolerance))
			return func(int, int) { m.b.ExpertDown(out, mid, w, a) }
		}}
}

// downSumCase: the slots of each token are added up, with a further row or without. The mid
// rows of slots that are not computed are NaN.
func downSumCase(typ gguf.Type, cols, width, rows int, further bool) opCase {
	const used, experts = 3, 8
	return opCase{op: "ExpertDown", name: fmt.Sprintf("%s %dx%d, sums of %d further=%v", typ, width, cols, rows, further), rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			a := m.expertGroups(rows, used, experts, 1, 7)
			a.Start, a.End = 1, 7
			data := m.normal(rows*used*cols, 1)
			for slot, w := range a.Weights {
				if w == 0 {
					for i := range cols {
						data[slot*cols+i] = poisonF32
					}
				}
			}
			mid, out := long(m, data), blank[float32](m, rows*used*width)
			w := m.weight(typ, experts, width, cols, 0.1)
			a.Sum = fresh[float32](m, "sum", rows*width, exactOr(typ, quantisedTolerance))
			if further {
				a.Plus = long(m, m.normal(rows*width, 1))
			}
			return func(int, int) { m.b.ExpertDown(out, mid, w, a) }
		}}
}
