package engine

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
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
//     Otherwise the weights are exp(logit / temperature), relative to the largest;
//  5. top_k keeps the k largest logits;
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
	source *rand.PCG
	random *rand.Rand    // of source
	counts map[int32]int // occurrences of each token in the answer
}

func newSampler(p Sampling, seed uint64) *sampler {
	source := rand.NewPCG(seed, pcgStream)
	return &sampler{params: p, source: source, random: rand.New(source), counts: map[int32]int{}}
}

// copy returns a sampler that draws what s will draw from the same rows.
func (s *sampler) copy() *sampler {
	source := *s.source
	return &sampler{params: s.params, source: &source, random: rand.New(&source), counts: maps.Clone(s.counts)}
}

// scratch is memory for one sampler at a time.
type scratch struct {
	weights []float64 // [vocab]
	maxima  []float64 // [parts] of the row's logits
	sums    []float64 // [vocab] at most
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
	id := mem.best(w)
	if s.params.Temperature > 0 && !math.IsInf(w[id], -1) {
		id = s.pick(w, w[id], mem)
	}
	s.counts[id]++
	return id
}

// pick samples at a temperature above 0 from logits w [vocab] with the maximum top; it
// turns them into weights. mem must have their maxima.
func (s *sampler) pick(w []float64, top float64, mem *scratch) int32 {
	p := s.params
	topP := p.TopP > 0 && p.TopP < 1
	var ids []int32
	var total float64
	if p.TopK > 0 && p.TopK < len(w) {
		ids = mem.heaviestLogits(w, p.TopK)
		for _, id := range ids {
			total += weigh(w[id:id+1], top, p.Temperature)
		}
	} else {
		total = mem.weighParts(w, top, p.Temperature)
		if !topP && p.MinP == 0 {
			return s.drawAny(w, total, mem.sums)
		}
		// Tokens that no rule can keep are left out first, so that few tokens of a peaked
		// row remain to be sorted. Weights below (1-p)/vocab of the total have a sum below
		// 1-p, so top_p never keeps them; half of that bound leaves a margin for rounding.
		least := p.MinP
		if topP {
			least = total * (1 - p.TopP) / float64(len(w)) / 2
		}
		ids = mem.ids[:0]
		for i, x := range w {
			if x > 0 && x >= least {
				ids = append(ids, int32(i))
			}
		}
		mem.ids = ids
	}
	if topP {
		ids = heaviest(w, ids, len(ids), p.TopP*total)
	}
	return s.drawFrom(w, ids, mem)
}

// partLen is the length of the parts of a row that have a maximum and a sum of their own,
// so that few of the row's weights are looked at again.
const partLen = 256

// best returns the lowest id of the largest logit of w [vocab], and leaves the maximum of
// each part in mem.
func (mem *scratch) best(w []float64) int32 {
	mem.maxima = mem.maxima[:0]
	best := 0
	for from := 0; from < len(w); from += partLen {
		part := w[from:min(from+partLen, len(w))]
		top := 0
		for i, x := range part {
			if x > part[top] {
				top = i
			}
		}
		mem.maxima = append(mem.maxima, part[top])
		if part[top] > w[best] {
			best = from + top
		}
	}
	return int32(best)
}

// heaviestLogits returns the ids of the n largest logits of w [vocab], the lowest ids first
// among equals, in no order. The n-th largest maximum of a part is no larger than the n-th
// largest logit, so few logits are compared.
func (mem *scratch) heaviestLogits(w []float64, n int) []int32 {
	least := math.Inf(-1)
	if n <= len(mem.maxima) {
		mem.sums = append(mem.sums[:0], mem.maxima...)
		slices.Sort(mem.sums)
		least = mem.sums[len(mem.sums)-n]
	}
	ids := mem.ids[:0]
	for i, top := range mem.maxima {
		if top < least {
			continue
		}
		from := i * partLen
		for j, x := range w[from:min(from+partLen, len(w))] {
			if x >= least {
				ids = append(ids, int32(from+j))
			}
		}
	}
	mem.ids = ids
	return heaviest(w, ids, n, math.Inf(1))
}

// weighParts weighs all logits w [vocab]. It returns the total of the weights, and leaves
// the sum of each part in mem.
func (mem *scratch) weighParts(w []float64, top, temperature float64) (total float64) {
	mem.sums = mem.sums[:0]
	for part := range slices.Chunk(w, partLen) {
		sum := weigh(part, top, temperature)
		mem.sums = append(mem.sums, sum)
		total += sum
	}
	return total
}

// drawAny samples among all weights w [vocab]; sums are those of its parts.
func (s *sampler) drawAny(w []float64, total float64, sums []float64) int32 {
	part, left := find(s.random.Float64()*total, sums)
	id, _ := find(left, w[part*partLen:min((part+1)*partLen, len(w))])
	return int32(part*partLen + id)
}

// drawFrom samples among those of ids that min_p keeps, one at least.
func (s *sampler) drawFrom(w []float64, ids []int32, mem *scratch) int32 {
	mem.sums = mem.sums[:0]
	total := 0.0
	for _, id := range ids {
		x := w[id]
		if x < s.params.MinP {
			x = 0
		}
		mem.sums = append(mem.sums, x)
		total += x
	}
	i, _ := find(s.random.Float64()*total, mem.sums)
	return ids[i]
}

// find returns the first i for which the sum of w[:i+1] is more than x, and x less the sum
// of w[:i]. If rounding made x too large, that is the last weight above 0, and infinity.
func find(x float64, w []float64) (i int, left float64) {
	last := 0
	for i, weight := range w {
		if weight == 0 {
			continue
		}
		if x < weight {
			return i, x
		}
		x -= weight
		last = i
	}
	return last, math.Inf(1)
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
