package kerneltest

import (
	"fmt"
	"slices"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// routeTolerance: softplus, a square root, a sum of 8 and a division in
// float32.
var routeTolerance = tolerance{rel: 2e-6}

func expertCases() []opCase {
	cases := []opCase{
		routeCase("16 of 2", 16, 2, nil), routeCase("256 of 6", 256, 6, nil), routeCase("384 of 8 biased", 384, 8, nil),
		routeCase("all", 5, 5, nil), routeCase("odd", 37, 3, nil), routeEdges(), routeTies(), tableCase(), tableEdges(),
		{op: "ExpertMask", name: "a share", rows: 40, chunks: []int{1, 7}, setup: func(m *mem, _ int) func(from, to int) {
			w, ids := long(m, m.normal(40, 1)), make([]int32, 40)
			for i := range ids {
				ids[i] = int32(m.rng.IntN(16))
			}
			d := long(m, ids)
			result(m, "weights", w, 40, tolerance{})
			return func(from, to int) { m.b.ExpertMask(w[from:], d[from:], to-from, 3, 11) }
		}},
	}
	for _, s := range groupShapes {
		cases = append(cases, groupCase(s))
	}
	cases = append(cases, groupTies())
	for _, share := range [][2]int{{0, 16}, {3, 11}, {5, 5}, {15, 16}} {
		cases = append(cases, compactCase(share[0], share[1]))
	}
	return append(cases, expertProductCases()...)
}

func routeCase(name string, experts, used int, table []int32) opCase {
	const rows = 21
	return opCase{op: "Route", name: name, rows: rows, chunks: []int{1, 4},
		setup: func(m *mem, _ int) func(from, to int) {
			logits := long(m, m.normal(rows*experts, 3))
			var bias []float32
			if experts%2 == 0 { // odd numbers of experts have no bias
				bias = long(m, m.normal(experts, 0.5))
			}
			ids := fresh[int32](m, "ids", rows*used, tolerance{})
			weights := fresh[float32](m, "weights", rows*used, routeTolerance)
			return func(from, to int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits[from*experts:], Bias: bias, Table: table, IDs: ids[from*used:], Weights: weights[from*used:],
					Rows: to - from, Experts: experts, Used: used, Normalise: used%2 == 0, Scale: 2.5,
				})
			}
		}}
}

// groupShape is a Route with the parameters of DeepSeek V2, V3 or their kin.
type groupShape struct {
	name               string
	experts, used      int
	score              kernels.Score
	groups, groupsUsed int
	by                 kernels.GroupScore
	bias, normalise    bool
	scale              float32
}

var groupShapes = []groupShape{
	{"V3", 256, 8, kernels.Sigmoid, 8, 4, kernels.GroupTopTwo, true, true, 2.5},
	{"V2", 160, 6, kernels.Softmax, 8, 3, kernels.GroupBest, false, false, 16},
	{"V2-Lite", 64, 6, kernels.Softmax, 1, 1, kernels.GroupBest, false, false, 1},
	{"Kimi K2", 384, 8, kernels.Sigmoid, 0, 0, kernels.GroupTopTwo, true, true, 2.827},
	{"softmax with a bias and sums of two", 40, 5, kernels.Softmax, 5, 2, kernels.GroupTopTwo, true, true, 1},
	{"all groups", 12, 12, kernels.Sigmoid, 4, 4, kernels.GroupBest, true, false, 1},
	{"groups of one", 7, 3, kernels.Sigmoid, 7, 3, kernels.GroupTopTwo, true, true, 1},
	{"groups of softplus", 32, 4, kernels.SqrtSoftplus, 8, 2, kernels.GroupTopTwo, true, true, 1},
}

// softmaxTolerance: a sum of some hundred float32 exponentials.
var softmaxTolerance = tolerance{rel: 2e-5}

func groupCase(s groupShape) opCase {
	const rows = 21
	return opCase{op: "Route", name: s.name, rows: rows, chunks: []int{1, 4},
		setup: func(m *mem, _ int) func(from, to int) {
			logits := long(m, m.normal(rows*s.experts, 3))
			var bias []float32
			if s.bias {
				bias = long(m, m.normal(s.experts, 0.3)) // some biased scores are negative
			}
			ids := fresh[int32](m, "ids", rows*s.used, tolerance{})
			tol := routeTolerance
			if s.score == kernels.Softmax {
				tol = softmaxTolerance
			}
			weights := fresh[float32](m, "weights", rows*s.used, tol)
			return func(from, to int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits[from*s.experts:], Bias: bias, IDs: ids[from*s.used:], Weights: weights[from*s.used:],
					Rows: to - from, Experts: s.experts, Used: s.used, Score: s.score, Groups: s.groups, GroupsUsed: s.groupsUsed,
					GroupScore: s.by, Normalise: s.normalise, Scale: s.scale,
				})
			}
		}}
}

// groupTies: among equal groups the lower comes first; a group of experts that are all
// negative may be kept; saturated sigmoids are equal.
func groupTies() opCase {
	const experts, used = 8, 3
	return opCase{op: "Route", name: "ties of groups", rows: 3,
		setup: func(m *mem, _ int) func(from, to int) {
			logits := long(m, []float32{
				1, 1, 1, 1, 1, 1, 1, 1,
				-100, 200, 200, -100, 200, 200, 200, 200,
				-3, -3, -3, -3, 0, 0, -9, -9,
			})
			bias := long(m, []float32{0, 0, 0, 0, -2, -2, -1, -1})
			ids := fresh[int32](m, "ids", 3*used, tolerance{})
			weights := fresh[float32](m, "weights", 3*used, routeTolerance)
			return func(from, to int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits[from*experts:], Bias: bias, IDs: ids[from*used:], Weights: weights[from*used:],
					Rows: to - from, Experts: experts, Used: used, Score: kernels.Sigmoid, Groups: 4, GroupsUsed: 2,
					GroupScore: kernels.GroupTopTwo, Scale: 1,
				})
			}
		}}
}

// routeEdges: logits where softplus changes its formula or would overflow, and
// a sum so small that its lower bound applies.
func routeEdges() opCase {
	const experts, used = 4, 2
	rows := [][]float32{
		{20, 20.001, 19.999, 0}, {-20, -20.001, -19.999, -30}, {1000, 500, -1000, 88.8}, {-60, -50, -55, -45}, {0, -1, 1, -2},
	}
	return opCase{op: "Route", name: "edges of softplus", rows: len(rows),
		setup: func(m *mem, _ int) func(from, to int) {
			logits := long(m, slices.Concat(rows...))
			ids := fresh[int32](m, "ids", len(rows)*used, tolerance{})
			weights := blank[float32](m, len(rows)*used)
			for i := range len(rows) * used { // the sizes differ by 20 orders of magnitude
				result(m, fmt.Sprintf("weights %d", i), weights[i:], 1, routeTolerance)
			}
			return func(from, to int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits[from*experts:], IDs: ids[from*used:], Weights: weights[from*used:],
					Rows: to - from, Experts: experts, Used: used, Normalise: true, Scale: 1.5,
				})
			}
		}}
}

// routeTies: among equal scores the lower expert comes first, and the bias
// affects the choice but not the weight.
func routeTies() opCase {
	const experts, used = 8, 3
	return opCase{op: "Route", name: "ties and bias", rows: 2,
		setup: func(m *mem, _ int) func(from, to int) {
			logits := long(m, []float32{1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 0, 2, 0, 2, 0, 2})
			bias := long(m, []float32{0, 0, 5, 0, 0, 5, 0, 0})
			ids := fresh[int32](m, "ids", 2*used, tolerance{})
			weights := fresh[float32](m, "weights", 2*used, routeTolerance)
			return func(from, to int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits[from*experts:], Bias: bias, IDs: ids[from*used:], Weights: weights[from*used:],
					Rows: to - from, Experts: experts, Used: used, Scale: 1,
				})
			}
		}}
}

// tableCase: the experts of a token are its row of the table, in that order,
// and Bias is ignored.
func tableCase() opCase {
	const rows, experts, used, vocabulary = 9, 16, 6, 50
	return opCase{op: "Route", name: "table", rows: rows, chunks: []int{1, 4},
		setup: func(m *mem, _ int) func(from, to int) {
			table := m.plain(gguf.F32, vocabulary, used, make([]float32, vocabulary*used)) // only for its pages
			ids := asInts(table.Data)
			for tok := range vocabulary {
				for i, e := range m.rng.Perm(experts)[:used] {
					ids[tok*used+i] = int32(e)
				}
			}
			logits := long(m, m.normal(rows*experts, 3))
			tokens := make([]int32, rows)
			for i := range tokens {
				tokens[i] = int32(m.rng.IntN(vocabulary))
			}
			tokens[0], tokens[1] = 0, vocabulary-1
			d := long(m, tokens)
			out := fresh[int32](m, "ids", rows*used, tolerance{})
			weights := fresh[float32](m, "weights", rows*used, routeTolerance)
			return func(from, to int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits[from*experts:], Bias: []float32{}, Table: ids, Tokens: d[from:], IDs: out[from*used:],
					Weights: weights[from*used:], Rows: to - from, Experts: experts, Used: used, Normalise: true, Scale: 1.5,
				})
			}
		}}
}

// tableEdges: a table may name one expert twice.
func tableEdges() opCase {
	const experts, used = 4, 3
	return opCase{op: "Route", name: "table with a repeated expert", rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			ids := asInts(m.plain(gguf.F32, 2, used, make([]float32, 2*used)).Data)
			copy(ids, []int32{0, 0, 0, 3, 1, 3})
			logits, tokens := long(m, []float32{-3, 2, 7, 0.5}), long(m, []int32{1})
			out := fresh[int32](m, "ids", used, tolerance{})
			weights := fresh[float32](m, "weights", used, routeTolerance)
			return func(int, int) {
				m.b.Route(kernels.RouteArgs{
					Logits: logits, Table: ids, Tokens: tokens, IDs: out, Weights: weights,
					Rows: 1, Experts: experts, Used: used, Normalise: true, Scale: 1,
				})
			}
		}}
}

// compactCase compares the slots up to the count only: the rest is undefined.
func compactCase(start, end int) opCase {
	const rows, used, experts = 30, 3, 16
	return opCase{op: "ExpertCompact", name: fmt.Sprintf("share %d to %d", start, end), rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			ids := make([]int32, 0, rows*used)
			for range rows {
				for _, e := range m.rng.Perm(experts)[:used] {
					ids = append(ids, int32(e))
				}
			}
			owned := 0
			for _, e := range ids {
				if int(e) >= start && int(e) < end {
					owned++
				}
			}
			d := long(m, ids)
			offsets := fresh[int32](m, "offsets", experts+1, tolerance{})
			slots := blank[int32](m, rows*used)
			result(m, "slots", slots, owned, tolerance{})
			return func(int, int) {
				m.b.ExpertCompact(kernels.ExpertGroups{Offsets: offsets, Slots: slots}, d, rows, used, experts, start, end)
			}
		}}
}

// quantisedTolerance: rounding 32 normal activations to 8 bits with one scale
// gives an error with a standard deviation of about 0.5 % of theirs, and so
// does a product with random weights; no element of a few thousand is off by
// more than six of these deviations.
var quantisedTolerance = tolerance{rel: 0.04, rms: 0.01}

// expertTolerance: two such products passed through silu, and their product.
var expertTolerance = tolerance{rel: 0.12, rms: 0.02}

func exactOr(typ gguf.Type, quantised tolerance) tolerance {
	if typ.BlockElements() == 1 {
		return tolerance{rel: 1e-5} // float32 sums of a few thousand products
	}
	return quantised
}

// asInts views the bytes of a mapping as int32.
func asInts(data []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}
