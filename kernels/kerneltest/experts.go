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

// softmaxTolerance: a sum of some hundred float32 exponentials.
var softmaxTolerance = tolerance{rel: 2e-5}

func expertCases() []opCase {
	cases := append(routeCases(), tableCase("table", 9, 0, 0), tableCase("table, lists of 9", 9, 3, 12), tableCase("table, lists of 1", 1, 3, 12), tableEdges(),
		opCase{op: "ExpertMask", name: "a share", rows: 40, chunks: []int{1, 7}, setup: func(m *mem, _ int) func(from, to int) {
			w, ids := long(m, m.normal(40, 1)), make([]int32, 40)
			for i := range ids {
				ids[i] = int32(m.rng.IntN(16))
			}
			d := long(m, ids)
			result(m, "weights", w, 40, tolerance{})
			return func(from, to int) { m.b.ExpertMask(w[from:], d[from:], to-from, 3, 11) }
		}})
	for _, share := range [][2]int{{0, 16}, {3, 11}, {5, 5}, {15, 16}} {
		cases = append(cases, compactCase(share[0], share[1]))
	}
	return append(cases, expertProductCases()...)
}

// routeShape is a Route of the given logits, or of random ones.
type routeShape struct {
	name string
	args kernels.RouteArgs
	bias float64 // standard deviation of a random bias; 0 for that of args
	each bool    // the sizes of the weights differ by orders of magnitude
	rows int     // of a call with lists, which are of all its rows; 0 for no lists
}

func routeCases() []opCase {
	shapes := []routeShape{
		{name: "lists of 1", rows: 1, args: kernels.RouteArgs{Experts: 256, Used: 6, Normalise: true, Scale: 2.5, Start: 40, End: 200}, bias: 0.5},
		{name: "lists of 1, all experts", rows: 1, args: kernels.RouteArgs{Experts: 37, Used: 37, Scale: 2.5, End: 37}},
		{name: "lists of 1, groups", rows: 1, bias: 0.5, args: kernels.RouteArgs{
			Experts: 256, Used: 8, Groups: 8, GroupsUsed: 4, GroupScore: kernels.GroupTopTwo, Score: kernels.Sigmoid, Normalise: true, Scale: 2.5, Start: 128, End: 256,
		}},
		{name: "lists of 1, none here", rows: 1, args: kernels.RouteArgs{Experts: 16, Used: 2, Scale: 1, Start: 3, End: 3}},
		{name: "lists of 21", rows: 21, args: kernels.RouteArgs{Experts: 64, Used: 6, Normalise: true, Scale: 2.5, Start: 10, End: 50}, bias: 0.5},
		{name: "lists of 2, all experts", rows: 2, args: kernels.RouteArgs{Experts: 16, Used: 3, Scale: 2.5, End: 16}},
		{name: "16 of 2", args: kernels.RouteArgs{Experts: 16, Used: 2, Normalise: true, Scale: 2.5}, bias: 0.5},
		{name: "256 of 6", args: kernels.RouteArgs{Experts: 256, Used: 6, Normalise: true, Scale: 2.5}, bias: 0.5},
		{name: "384 of 8 biased", args: kernels.RouteArgs{Experts: 384, Used: 8, Normalise: true, Scale: 2.5}, bias: 0.5},
		{name: "all", args: kernels.RouteArgs{Experts: 5, Used: 5, Scale: 2.5}},
		{name: "odd", args: kernels.RouteArgs{Experts: 37, Used: 3, Scale: 2.5}},
		// Logits where softplus changes its formula or would overflow, and a sum so small that
		// its lower bound applies.
		{name: "edges of softplus", each: true, args: kernels.RouteArgs{Experts: 4, Used: 2, Normalise: true, Scale: 1.5, Logits: []float32{
			20, 20.001, 19.999, 0,
			-20, -20.001, -19.999, -30,
			1000, 500, -1000, 88.8,
			-60, -50, -55, -45,
			0, -1, 1, -2,
		}}},
		// Among equal scores the lower expert comes first, and the bias affects the choice but
		// not the weight.
		{name: "ties and bias", args: kernels.RouteArgs{
			Experts: 8, Used: 3, Scale: 1, Logits: []float32{1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 0, 2, 0, 2, 0, 2}, Bias: []float32{0, 0, 5, 0, 0, 5, 0, 0},
		}},
		// Among equal groups the lower comes first; a group of experts that are all negative may
		// be kept; saturated sigmoids are equal.
		{name: "ties of groups", args: kernels.RouteArgs{
			Experts: 8, Used: 3, Scale: 1, Score: kernels.Sigmoid, Groups: 4, GroupsUsed: 2, GroupScore: kernels.GroupTopTwo,
			Logits: []float32{
				1, 1, 1, 1, 1, 1, 1, 1,
				-100, 200, 200, -100, 200, 200, 200, 200,
				-3, -3, -3, -3, 0, 0, -9, -9,
			},
			Bias: []float32{0, 0, 0, 0, -2, -2, -1, -1},
		}},
	}
	var cases []opCase
	for _, s := range append(shapes, groupShapes()...) {
		cases = append(cases, routeCase(s))
	}
	return cases
}

// groupShapes have the parameters of DeepSeek V2, V3 or their kin. Some biased scores are
// negative.
func groupShapes() []routeShape {
	var shapes []routeShape
	for _, s := range []struct {
		name               string
		experts, used      int
		score              kernels.Score
		groups, groupsUsed int
		by                 kernels.GroupScore
		bias               float64
		normalise          bool
		scale              float32
	}{
		{"V3", 256, 8, kernels.Sigmoid, 8, 4, kernels.GroupTopTwo, 0.3, true, 2.5},
		{"V2", 160, 6, kernels.Softmax, 8, 3, kernels.GroupBest, 0, false, 16},
		{"V2-Lite", 64, 6, kernels.Softmax, 1, 1, kernels.GroupBest, 0, false, 1},
		{"Kimi K2", 384, 8, kernels.Sigmoid, 0, 0, kernels.GroupTopTwo, 0.3, true, 2.827},
		{"softmax with a bias and sums of two", 40, 5, kernels.Softmax, 5, 2, kernels.GroupTopTwo, 0.3, true, 1},
		{"all groups", 12, 12, kernels.Sigmoid, 4, 4, kernels.GroupBest, 0.3, false, 1},
		{"groups of one", 7, 3, kernels.Sigmoid, 7, 3, kernels.GroupTopTwo, 0.3, true, 1},
		{"groups of softplus", 32, 4, kernels.SqrtSoftplus, 8, 2, kernels.GroupTopTwo, 0.3, true, 1},
	} {
		shapes = append(shapes, routeShape{name: s.name, bias: s.bias, args: kernels.RouteArgs{
			Experts: s.experts, Used: s.used, Score: s.score, Groups: s.groups, GroupsUsed: s.groupsUsed, GroupScore: s.by,
			Normalise: s.normalise, Scale: s.scale,
		}})
	}
	return shapes
}

func routeCase(s routeShape) opCase {
	rows, chunks := 21, []int{1, 4}
	switch {
	case s.rows > 0:
		rows, chunks = s.rows, []int{s.rows}
	case s.args.Logits != nil:
		rows, chunks = len(s.args.Logits)/s.args.Experts, nil
	}
	return opCase{op: "Route", name: s.name, rows: rows, chunks: chunks,
		setup: func(m *mem, _ int) func(from, to int) {
			a := s.args
			if a.Logits == nil {
				a.Logits = m.normal(rows*a.Experts, 3)
			}
			a.Logits = long(m, a.Logits)
			if s.bias > 0 {
				a.Bias = m.normal(a.Experts, s.bias)
			}
			if a.Bias != nil {
				a.Bias = long(m, a.Bias)
			}
			return m.route(a, rows, s.each)
		}}
}

// route makes the outputs of a Route of rows and returns the function that encodes some
// of them. With each, every weight is an output of its own.
func (m *mem) route(a kernels.RouteArgs, rows int, each bool) func(from, to int) {
	tol := routeTolerance
	if a.Score == kernels.Softmax {
		tol = softmaxTolerance
	}
	n := rows * a.Used
	a.IDs, a.Weights = fresh[int32](m, "ids", n, tolerance{}), blank[float32](m, n)
	if each {
		for i := range n {
			result(m, fmt.Sprintf("weights %d", i), a.Weights[i:], 1, tol)
		}
	} else {
		result(m, "weights", a.Weights, n, tol)
	}
	if a.End > 0 { // of the slots those that are listed are outputs
		offsets, slots := blank[int32](m, a.Experts+1), blank[int32](m, n)
		a.Lists = kernels.ExpertGroups{Offsets: offsets, Slots: slots}
		m.checked("lists", func() (values []float64, bits []uint32) {
			for _, v := range append(slices.Clone(offsets[:a.Experts+1]), slots[:offsets[a.Experts]]...) {
				values, bits = append(values, valueOf(v)), append(bits, bitsOf(v))
			}
			return values, bits
		}, tolerance{}, nil)
	}
	return func(from, to int) {
		part := a
		part.Logits, part.IDs, part.Weights, part.Rows = a.Logits[from*a.Experts:], a.IDs[from*a.Used:], a.Weights[from*a.Used:], to-from
		if a.Table != nil {
			part.Tokens = a.Tokens[from:]
		}
		m.b.Route(part)
	}
}

// tableCase: the experts of a token are its row of the table, in that order,
// and Bias is ignored. With an end there are lists.
func tableCase(name string, rows, start, end int) opCase {
	const experts, used, vocabulary = 16, 6, 50
	chunks := []int{1, 4}
	if end > 0 {
		chunks = []int{rows}
	}
	return opCase{op: "Route", name: name, rows: rows, chunks: chunks,
		setup: func(m *mem, _ int) func(from, to int) {
			table := asInts(m.plain(gguf.F32, vocabulary, used, make([]float32, vocabulary*used)).Data) // only for its pages
			for tok := range vocabulary {
				for i, e := range m.rng.Perm(experts)[:used] {
					table[tok*used+i] = int32(e)
				}
			}
			logits := long(m, m.normal(rows*experts, 3))
			tokens := make([]int32, rows)
			for i := range tokens {
				tokens[i] = int32(m.rng.IntN(vocabulary))
			}
			tokens[0] = 0
			tokens[rows-1] = vocabulary - 1
			return m.route(kernels.RouteArgs{
				Logits: logits, Bias: []float32{}, Table: table, Tokens: long(m, tokens),
				Experts: experts, Used: used, Normalise: true, Scale: 1.5, Start: start, End: end,
			}, rows, false)
		}}
}

// tableEdges: a table may name one expert twice, whose slots are then listed in order.
func tableEdges() opCase {
	const experts, used = 4, 3
	return opCase{op: "Route", name: "table with a repeated expert", rows: 1,
		setup: func(m *mem, _ int) func(from, to int) {
			table := asInts(m.plain(gguf.F32, 2, used, make([]float32, 2*used)).Data)
			copy(table, []int32{0, 0, 0, 3, 1, 3})
			return m.route(kernels.RouteArgs{
				Logits: long(m, []float32{-3, 2, 7, 0.5}), Table: table, Tokens: long(m, []int32{1}),
				Experts: experts, Used: used, Normalise: true, Scale: 1, Start: 2, End: 4,
			}, 1, false)
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

// exactOr is the tolerance of products of a type. NVFP4 is multiplied by float32 activations.
func exactOr(typ gguf.Type, quantised tolerance) tolerance {
	if typ.BlockElements() == 1 || typ == gguf.NVFP4 {
		return tolerance{rel: 1e-5} // float32 sums of a few thousand products
	}
	return quantised
}

// asFloats views the bytes of a mapping as float32.
func asFloats(data []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

// asInts views the bytes of a mapping as int32.
func asInts(data []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}
