package exact

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// choose is the experts with the largest scores, among those of the best groups if there
// is more than one group.
func choose(scores []float64, groups, kept, used int, twoBest bool) []int {
	if groups == 1 {
		return largest(scores, used)
	}
	n, allowed := len(scores)/groups, slices.Clone(scores)
	best := largest(groupScores(scores, groups, twoBest), kept)
	for e := range allowed {
		if !slices.Contains(best, e/n) {
			allowed[e] = math.Inf(-1)
		}
	}
	return largest(allowed, used)
}

// groupScores is the score of each group: its best expert, or the sum of its two best.
func groupScores(scores []float64, groups int, twoBest bool) []float64 {
	n, of := len(scores)/groups, make([]float64, groups)
	for g := range of {
		sorted := slices.Sorted(slices.Values(scores[g*n:][:n]))
		of[g] = sorted[n-1]
		if twoBest && n > 1 {
			of[g] += sorted[n-2]
		}
	}
	return of
}

// regret is how far the given experts are from being the choice: by how much the best
// expert or group left out is above the worst one taken. Of the sets of groups that could
// have led to these experts it takes the likeliest.
func regret(scores []float64, groups, kept int, given []int, twoBest bool) float64 {
	if groups == 1 {
		return excess(scores, func(e int) bool { return slices.Contains(given, e) }, func(int) bool { return true })
	}
	n, of, needed := len(scores)/groups, groupScores(scores, groups, twoBest), uint(0)
	for _, e := range given {
		needed |= 1 << (e / n)
	}
	least := math.Inf(1)
	for set := uint(0); set < 1<<groups; set++ {
		if bits.OnesCount(set) != kept || set&needed != needed {
			continue
		}
		taken := func(g int) bool { return set>>g&1 == 1 }
		least = min(least, max(
			excess(of, taken, func(int) bool { return true }),
			excess(scores, func(e int) bool { return slices.Contains(given, e) }, func(e int) bool { return taken(e / n) })))
	}
	return least
}

// excess is by how much the largest allowed score that is not taken is above the smallest
// that is, or 0.
func excess(scores []float64, taken, allowed func(int) bool) float64 {
	most, least := math.Inf(-1), math.Inf(1)
	for i, v := range scores {
		switch {
		case taken(i):
			least = min(least, v)
		case allowed(i):
			most = max(most, v)
		}
	}
	return max(0, most-least)
}

// largest are the indices of the n largest, of equal ones the first.
func largest(x []float64, n int) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[b], x[a]) })
	return order[:n]
}
