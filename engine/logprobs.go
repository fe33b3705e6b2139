package engine

import (
	"bytes"
	"math"
)

// MaxTopLogprobs is the most alternatives of a token, as in OpenAI's API.
const MaxTopLogprobs = 20

// Log-probabilities are those of the model itself: of the raw logits, before
// bias, penalties, temperature and the cuts. A greedy answer and a hot one give
// the same number for the same token at the same place.

// logSum is log(sum(exp(row))), in float64 and by id.
func logSum(row []float32) float64 {
	top := math.Inf(-1)
	for _, x := range row {
		top = math.Max(top, float64(x))
	}
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// withLogprobs fills in the log-probability of t and of the n most likely
// tokens from the logits row [vocab] that t was drawn from.
func withLogprobs(t Token, row []float32, n int, v Vocabulary) Token {
	sum := logSum(row)
	t.Logprob = float64(row[t.ID]) - sum
	for _, id := range largest(row, n) {
		t.Top = append(t.Top, Alternative{ID: id, Bytes: bytes.Clone(v.Bytes(id)), Logprob: float64(row[id]) - sum})
	}
	return t
}

// largest is the ids of the n largest values, falling; of equals the lowest id
// first. n is small: each value is held against the worst of those kept.
func largest(row []float32, n int) []int32 {
	if n == 0 {
		return nil
	}
	kept := make([]int32, 0, n+1)
	for i, x := range row {
		if len(kept) == n && x <= row[kept[n-1]] {
			continue
		}
		kept = append(kept, int32(i))
		for j := len(kept) - 1; j > 0 && row[kept[j]] > row[kept[j-1]]; j-- {
			kept[j], kept[j-1] = kept[j-1], kept[j]
		}
		kept = kept[:min(len(kept), n)]
	}
	return kept
}

// firstBad is the index of the first value that is NaN or infinite, -1 if all
// are finite.
func firstBad(row []float32) int {
	for i, x := range row {
		// x-x is 0 for finite numbers and NaN for the others.
		if x-x != 0 {
			return i
		}
	}
	return -1
}
