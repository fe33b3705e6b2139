package reference

import (
	"math"
	"slices"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// Route scores every expert, selects the best and computes their weights.
func (b *Backend) Route(a kernels.RouteArgs) {
	contract.Route(&a)
	contract.Table(&a)
	for t := range a.Rows {
		scores := expertScores(a.Score, a.Logits[t*a.Experts:][:a.Experts])
		chosen := choose(&a, t, scores)
		sum := 0.0
		for _, e := range chosen {
			sum += scores[e]
		}
		for i, e := range chosen {
			w := scores[e]
			if a.Normalise {
				w /= math.Max(sum, 6.103515625e-5)
			}
			a.IDs[t*a.Used+i] = e
			a.Weights[t*a.Used+i] = float32(w * float64(a.Scale))
		}
	}
	if a.Lists.Offsets != nil {
		b.ExpertMask(a.Weights, a.IDs, a.Rows*a.Used, a.Start, a.End)
		b.ExpertCompact(a.Lists, a.IDs, a.Rows, a.Used, a.Experts, a.Start, a.End)
	}
}

// expertScores is the scores of a token's logits.
func expertScores(kind kernels.Score, logits []float32) []float64 {
	scores := make([]float64, len(logits))
	most, sum := float64(slices.Max(logits)), 0.0
	for e, x := range logits {
		x := float64(x)
		switch kind {
		case kernels.Sigmoid:
			scores[e] = 1 / (1 + math.Exp(-x))
		case kernels.Softmax:
			scores[e] = math.Exp(x - most)
			sum += scores[e]
		default:
			scores[e] = math.Sqrt(softplus(x))
		}
	}
	for e := range scores {
		if kind == kernels.Softmax {
			scores[e] /= sum
		}
	}
	return scores
}

// choose lists the experts of token t in the order of its slots.
func choose(a *kernels.RouteArgs, t int, scores []float64) []int32 {
	if a.Table != nil {
		tok := int(a.Tokens[t])
		return a.Table[tok*a.Used : (tok+1)*a.Used]
	}
	biased := func(e int32) float64 {
		if a.Bias == nil {
			return scores[e]
		}
		return scores[e] + float64(a.Bias[e])
	}
	order := make([]int32, 0, a.Experts)
	if a.Groups <= 1 {
		for e := range a.Experts {
			order = append(order, int32(e))
		}
	} else {
		size := a.Experts / a.Groups
		groups, scores := make([]int32, a.Groups), make([]float64, a.Groups)
		for g := range groups {
			groups[g] = int32(g)
			members := make([]float64, size)
			for i := range members {
				members[i] = biased(int32(g*size + i))
			}
			slices.Sort(members)
			scores[g] = members[size-1]
			if a.GroupScore == kernels.GroupTopTwo && size > 1 {
				scores[g] += members[size-2]
			}
		}
		descend(groups, func(g int32) float64 { return scores[g] })
		groups = groups[:a.GroupsUsed]
		slices.Sort(groups) // ties are by number of the expert
		for _, g := range groups {
			for i := range size {
				order = append(order, g*int32(size)+int32(i))
			}
		}
	}
	descend(order, biased)
	return order[:a.Used]
}

// descend sorts numbers by their values, descending; equal ones keep their order.
func descend(numbers []int32, value func(int32) float64) {
	slices.SortStableFunc(numbers, func(x, y int32) int {
		switch vx, vy := value(x), value(y); {
		case vx > vy:
			return -1
		case vx < vy:
			return 1
		}
		return 0
	})
}

// ExpertMask zeroes the weights of remote experts.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	contract.ExpertMask(weights, ids, n)
	for i := range n {
		if int(ids[i]) < start || int(ids[i]) >= end {
			weights[i] = 0
		}
	}
}

// ExpertCompact lists the slots of each expert in the range.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	contract.ExpertCompact(out, ids, rows, used, experts, start, end)
	n := 0
	for e := range experts {
		out.Offsets[e] = int32(n)
		if e < start || e >= end {
			continue
		}
		for slot := range rows * used {
			if int(ids[slot]) == e {
				out.Slots[n] = int32(slot)
				n++
			}
		}
	}
	out.Offsets[experts] = int32(n)
}

// ExpertGateUp computes the hidden activations of the routed experts.
func (b *Backend) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, clamp float32, a kernels.ExpertArgs) {
	contract.ExpertGateUp(mid, x, gate, up, &a)
	contract.Groups("ExpertGateUp", &a)
	width := gate.Rows
	for e := range a.Experts {
		slots := a.Groups.Slots[a.Groups.Offsets[e]:a.Groups.Offsets[e+1]]
		owned := e >= a.Start && e < a.End
		touched := owned && slices.ContainsFunc(slots, func(s int32) bool { return a.Weights[s] != 0 })
		var g, u [][]float32
		if touched {
			g, u = b.rows(gate, e), b.rows(up, e)
		}
		for _, slot := range slots {
			row := mid[int(slot)*width:][:width]
			weight := float64(a.Weights[slot])
			if weight == 0 || !owned {
				clear(row)
				continue
			}
			in := x[int(slot)/a.Used*gate.Cols:][:gate.Cols]
			for i := range row {
				by := func(w kernels.Weight, y float64) float64 { return float64(w.Scale(e)) * y }
				row[i] = float32(weight * swiglu(by(gate, dot(g[i], in)), by(up, dot(u[i], in)), float64(clamp)))
			}
		}
	}
}

// ExpertDown computes the outputs of the routed experts.
func (b *Backend) ExpertDown(out, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	contract.ExpertDown(out, mid, down, &a)
	contract.Groups("ExpertDown", &a)
	clear(out[:a.Rows*a.Used*down.Rows])
	for e := range a.Experts {
		var w [][]float32
		for _, slot := range a.Groups.Slots[a.Groups.Offsets[e]:a.Groups.Offsets[e+1]] {
			if a.Weights[slot] == 0 {
				continue
			}
			if w == nil {
				w = b.rows(down, e)
			}
			in := mid[int(slot)*down.Cols:][:down.Cols]
			for i, row := range w {
				out[int(slot)*down.Rows+i] = float32(float64(down.Scale(e)) * dot(row, in))
			}
		}
	}
	if a.Sum == nil {
		return
	}
	b.SumSlots(a.Sum, out, a.Rows, a.Used, down.Rows)
	if a.Plus != nil {
		b.Add(a.Sum, a.Sum, a.Plus, a.Rows*down.Rows)
	}
}
