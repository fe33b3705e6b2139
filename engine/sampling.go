package engine

import (
	"math"
	"math/rand/v2"
)

// pcgStream is the second word of the PCG generator's seed, an arbitrary constant.
const pcgStream = 0x52696e676d617374

// sampler samples the tokens of one answer, from the logits that a constraint has
// left. The order of its rules:
//
//  1. logit bias is added;
//  2. penalties are subtracted, as OpenAI defines them: presence once, and
//     frequency for each occurrence of the token in the answer so far (the
//     prompt does not count);
//  3. banned tokens are excluded, and end tokens before MinTokens, unless a
//     constraint leaves no other;
//  4. with temperature 0 the largest logit wins, the lowest id among equals.
//     Otherwise the weights are exp(logit / temperature);
//  5. top_k keeps the k largest weights;
//  6. top_p keeps the fewest of the largest weights that together have at least the
//     fraction p of the weights that top_k kept;
//  7. min_p keeps the weights of at least p times the largest;
//  8. one of the remaining tokens is sampled in proportion to its weight, with
//     one number of the generator.
//
// All sums are in float64 in a fixed order, so that equal logits and an equal seed
// give the same text.
type sampler struct {
	params Sampling
	random *rand.Rand
	counts map[int32]int // occurrences of each token in the answer
}

func newSampler(p Sampling, seed uint64) *sampler {
	return &sampler{params: p, random: rand.New(rand.NewPCG(seed, pcgStream)), counts: map[int32]int{}}
}

// scratch is memory that all samplers of the loop share.
type scratch struct {
	weights []float64 // [vocab]
	row     []float32 // [vocab]
	ids     []int32   // [vocab] at most
}

// draw samples the next token of the answer from its row of logits [vocab], which it does
// not change. It excludes the banned ids.
func (s *sampler) draw(row []float32, banned []int32, mem *scratch) int32 {
	if cap(mem.weights) < len(row) {
		mem.weights = make([]float64, len(row))
	}
	w := mem.weights[:len(row)]
	for i, x := range row {
		w[i] = float64(x)
	}
	for id, bias := range s.params.LogitBias {
		w[id] += bias
	}
	for id, n := range s.counts {
		w[id] -= s.params.PresencePenalty + s.params.FrequencyPenalty*float64(n)
	}
	for _, id := range banned {
		w[id] = math.Inf(-1)
	}
	id := argMax(w)
	if s.params.Temperature > 0 && !math.IsInf(w[id], -1) {
		id = s.pick(w, w[id], mem)
	}
	s.counts[id]++
	return id
}

// pick samples at a temperature above 0 from logits w [vocab] with the maximum top; it
// turns w into weights.
func (s *sampler) pick(w []float64, top float64, mem *scratch) int32 {
	p := s.params
	total := 0.0
	for i, x := range w {
		// Weights are relative to the largest, so none overflows and
		// the largest is 1.
		w[i] = math.Exp((x - top) / p.Temperature)
		total += w[i]
	}
	topK := p.TopK > 0 && p.TopK < len(w)
	topP := p.TopP > 0 && p.TopP < 1
	if !topK && !topP {
		return s.drawFrom(w, p.MinP, -1)
	}

	// Weights below (1-p)/vocab of the total have a sum below 1-p, so top_p never keeps
	// them, and few tokens of a peaked row remain to be sorted. Half of that bound leaves
	// a margin for rounding.
	least := 0.0
	if topP && !topK {
		least = total * (1 - p.TopP) / float64(len(w)) / 2
	}
	ids := mem.ids[:0]
	for i, x := range w {
		if x > 0 && x >= least {
			ids = append(ids, int32(i))
		}
	}
	mem.ids = ids
	if topK {
		ids = heaviest(w, ids, p.TopK, math.Inf(1))
		total = 0
		for _, id := range ids {
			total += w[id]
		}
	}
	if topP {
		ids = heaviest(w, ids, len(ids), p.TopP*total)
	}
	last := ids[0]
	for _, id := range ids {
		if before(w, last, id) {
			last = id
		}
	}
	return s.drawFrom(w, p.MinP, last)
}

// drawFrom samples in the order of the ids among the weights of at least minP. Tokens
// after last in the order of before are left out; -1: none.
func (s *sampler) drawFrom(w []float64, minP float64, last int32) int32 {
	kept := func(i int) bool { return w[i] >= minP && (last < 0 || !before(w, last, int32(i))) }
	total := 0.0
	for i := range w {
		if kept(i) {
			total += w[i]
		}
	}
	left := s.random.Float64() * total
	id := 0
	for i, x := range w {
		if x == 0 || !kept(i) {
			continue
		}
		id = i // the last one wins if rounding makes left too large
		if left < x {
			break
		}
		left -= x
	}
	return int32(id)
}

// argMax returns the lowest id of the largest value.
func argMax(x []float64) int32 {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return int32(best)
}

// before orders tokens by descending weight, the lowest id first among equals.
func before(w []float64, a, b int32) bool { return w[a] > w[b] || w[a] == w[b] && a < b }

// heaviest moves the heaviest of ids to the front and returns them: the fewest that
// either number most or have a sum of at least enough, all of them if neither is reached.
// It is a quickselect that continues only on the side of the pivot that holds the border,
// so that it takes linear time on average.
func heaviest(w []float64, ids []int32, most int, enough float64) []int32 {
	if most >= len(ids) && math.IsInf(enough, 1) {
		return ids
	}
	low, high := 0, len(ids) // ids[:low] are in, ids[high:] are out
	sum := 0.0               // of ids[:low]
	for high-low > 1 {
		// The median of three goes to the end as the pivot.
		a, b, c := low, low+(high-low)/2, high-1
		if before(w, ids[b], ids[a]) {
			a, b = b, a
		}
		if before(w, ids[c], ids[b]) {
			b = c
			if before(w, ids[b], ids[a]) {
				b = a
			}
		}
		ids[b], ids[high-1] = ids[high-1], ids[b]
		pivot := ids[high-1]
		mid, part := low, 0.0 // ids[low:mid] are before the pivot
		for i := low; i < high-1; i++ {
			if before(w, ids[i], pivot) {
				part += w[ids[i]]
				ids[i], ids[mid] = ids[mid], ids[i]
				mid++
			}
		}
		ids[mid], ids[high-1] = ids[high-1], ids[mid]
		switch {
		case mid >= most || sum+part >= enough:
			high = mid // enough without the pivot
		case mid+1 >= most || sum+part+w[pivot] >= enough:
			return ids[:mid+1]
		default:
			low, sum = mid+1, sum+part+w[pivot]
		}
	}
	return ids[:high]
}
