package engine

import (
	"math"
	"math/rand/v2"
)

// pcgStream is the second word of the generator's seed: any fixed number.
const pcgStream = 0x52696e676d617374

// sampler draws the tokens of one answer. The order of its rules:
//
//  1. logit bias is added;
//  2. penalties are taken off, as OpenAI defines them: presence once and
//     frequency for each time that the token stands in the answer so far (the
//     prompt does not count);
//  3. before MinTokens, end tokens are ruled out;
//  4. temperature 0: the largest logit, of equals the lowest id. Otherwise the
//     logits are divided by the temperature and become weights by exp;
//  5. top_k keeps the k largest weights;
//  6. top_p keeps the smallest number of the largest that have the share p of
//     what top_k left;
//  7. min_p keeps those that have at least the share p of the largest;
//  8. one of the rest is drawn in proportion to its weight, with one number of
//     the generator.
//
// All sums are in float64 in a fixed order, so a seed gives the same text again
// wherever the logits are the same.
type sampler struct {
	params Sampling
	random *rand.Rand
	counts map[int32]int // how often each token stands in the answer
}

func newSampler(p Sampling, seed uint64) *sampler {
	return &sampler{params: p, random: rand.New(rand.NewPCG(seed, pcgStream)), counts: map[int32]int{}}
}

// scratch is memory that the samplers of one goroutine share.
type scratch struct {
	weights []float64 // [vocab]
	heap    []int32   // [vocab] at most
}

// draw picks the next token of the answer from its logits row [vocab], which
// it leaves alone. banned ids are ruled out.
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

// pick draws at a temperature above 0 from logits w [vocab], whose largest is
// top; w becomes weights.
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
		return s.drawInOrder(w, p.MinP)
	}

	// What a token must weigh to be kept whatever else is: the tokens below
	// (1-p)/vocab of the total have less than 1-p together, so top_p never
	// needs them. Half of it leaves room for rounding.
	least := 0.0
	if topP && !topK {
		least = total * (1 - p.TopP) / float64(len(w)) / 2
	}
	h := newWeightHeap(w, least, mem)
	keep := len(w)
	if topK {
		keep = p.TopK
	}
	enough := math.Inf(1)
	if topP && !topK {
		enough = p.TopP * total
	}
	sum, n := 0.0, 0
	for ; n < keep && len(h.ids) > 0 && sum < enough; n++ {
		sum += w[h.pop()]
	}
	kept := h.popped(n)
	if topP && topK {
		enough, sum = p.TopP*sum, 0
		for n = 0; n < len(kept) && sum < enough; n++ {
			sum += w[kept[n]]
		}
		kept = kept[:max(1, n)]
	}
	for len(kept) > 1 && w[kept[len(kept)-1]] < p.MinP {
		kept = kept[:len(kept)-1]
	}
	return s.drawFrom(w, kept)
}

// drawInOrder draws from the weights that are at least minP, by id.
func (s *sampler) drawInOrder(w []float64, minP float64) int32 {
	total := 0.0
	for _, x := range w {
		if x >= minP {
			total += x
		}
	}
	left := s.random.Float64() * total
	last := 0
	for i, x := range w {
		if x < minP || x == 0 {
			continue
		}
		last = i
		if left < x {
			break
		}
		left -= x
	}
	return int32(last)
}

// drawFrom draws from the weights of ids, in their order.
func (s *sampler) drawFrom(w []float64, ids []int32) int32 {
	total := 0.0
	for _, id := range ids {
		total += w[id]
	}
	left := s.random.Float64() * total
	for _, id := range ids {
		if left < w[id] {
			return id
		}
		left -= w[id]
	}
	return ids[len(ids)-1] // rounding used the last weight up
}

// argMax is the lowest id of the largest value.
func argMax(x []float64) int32 {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return int32(best)
}

// weightHeap gives ids by falling weight, of equals the lowest id first. To
// take m of n costs n + m log n: a full sort of the vocabulary is never needed.
type weightHeap struct {
	w     []float64
	ids   []int32 // a binary heap, the largest in front
	store []int32 // ids and, behind its end, what was popped, last first
}

// newWeightHeap makes a heap of the ids whose weight is above 0 and at least
// least.
func newWeightHeap(w []float64, least float64, mem *scratch) *weightHeap {
	h := &weightHeap{w: w, ids: mem.heap[:0]}
	for i, x := range w {
		if x > 0 && x >= least {
			h.ids = append(h.ids, int32(i))
		}
	}
	mem.heap = h.ids
	h.store = h.ids
	for i := len(h.ids)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return h
}

// pop takes the front out; the heap must not be empty.
func (h *weightHeap) pop() int32 {
	last := len(h.ids) - 1
	h.ids[0], h.ids[last] = h.ids[last], h.ids[0]
	id := h.ids[last]
	h.ids = h.ids[:last]
	h.down(0)
	return id
}

// popped is the n ids popped so far, the first first. The heap is used up.
func (h *weightHeap) popped(n int) []int32 {
	out := h.store[len(h.store)-n:]
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// before is the order of the heap.
func (h *weightHeap) before(a, b int32) bool {
	return h.w[a] > h.w[b] || h.w[a] == h.w[b] && a < b
}

// down moves the id at i to its place.
func (h *weightHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.ids) {
			return
		}
		if child+1 < len(h.ids) && h.before(h.ids[child+1], h.ids[child]) {
			child++
		}
		if !h.before(h.ids[child], h.ids[i]) {
			return
		}
		h.ids[i], h.ids[child] = h.ids[child], h.ids[i]
		i = child
	}
}
