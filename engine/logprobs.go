package engine

import (
	"math"
	"slices"
)

// MaxTopLogprobs is the most alternatives for one token, as in OpenAI's API.
const MaxTopLogprobs = 20

// Log-probabilities come from the raw logits, before bias, penalties, temperature, top_k,
// top_p and min_p, but after a constraint, so that they do not depend on the sampling
// parameters.

// logSum returns log(sum(exp(row))), summed in float64 in a fixed order.
func logSum(row []float32) float64 {
	top := math.Inf(-1)
	for _, x := range row {
		top = math.Max(top, float64(x))
	}
	sum := 0.0
	var part [partLen]float64
	for piece := range slices.Chunk(row, partLen) {
		for i, x := range piece {
			part[i] = float64(x)
		}
		sum += weigh(part[:len(piece)], top, 1)
	}
	return top + math.Log(sum)
}

// withLogprobs returns t with its log-probability and those of the n most likely possible
// tokens, from the row of logits [vocab] that t was sampled from.
func withLogprobs(t Token, row []float32, n int, token func(*Engine, int32) Token, e *Engine) Token {
	sum := logSum(row)
	t.Logprob = float64(row[t.ID]) - sum
	for _, id := range largest(row, n) {
		if !math.IsInf(float64(row[id]), -1) {
			t.Top = append(t.Top, Alternative{ID: id, Bytes: token(e, id).Bytes, Logprob: float64(row[id]) - sum})
		}
	}
	return t
}

// largest returns the ids of the n largest values in descending order, the lowest id
// first among equals. It is an insertion sort into n places because n is small.
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
