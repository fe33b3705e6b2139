package moe

import (
	"fmt"
	"math"
	"slices"

	"ringmaster/distributed"
)

// Range is a run of expert ids [Start, End).
type Range struct{ Start, End int }

// Len is the number of experts in the range.
func (r Range) Len() int { return r.End - r.Start }

// Share divides experts into consecutive ranges, one for each rank, in proportion
// to shares [ranks], rounded by the largest-remainder method: every rank gets the
// integer part of its quota, and the remaining experts go one each to the ranks
// with the largest fractions, of equals to the lower rank. So three equal shares
// of 256 experts are 86, 85 and 85. A rank whose quota is below one expert may get
// none. Shares must be positive and finite, otherwise an error names the rank;
// only their ratios matter.
func Share(experts int, shares []float64) ([]Range, error) {
	if experts < 1 || len(shares) == 0 {
		return nil, fmt.Errorf("moe: %d experts cannot be shared among %d ranks", experts, len(shares))
	}
	for r, s := range shares {
		if !(s > 0) || math.IsInf(s, 0) {
			return nil, fmt.Errorf("moe: the share of rank %d is %v; expected a positive number", r, s)
		}
	}
	largest := slices.Max(shares) // so that no sum overflows
	sum := 0.0
	for _, s := range shares {
		sum += s / largest
	}
	counts, rest := make([]int, len(shares)), make([]float64, len(shares))
	order, left := make([]int, len(shares)), experts
	for r, s := range shares {
		quota := float64(experts) * (s / largest) / sum
		counts[r] = int(quota)
		rest[r], order[r] = quota-math.Trunc(quota), r
		left -= counts[r]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] > rest[b]:
			return -1
		case rest[a] < rest[b]:
			return 1
		}
		return 0
	})
	for i := range left { // fewer than ranks, as every remainder is below 1
		counts[order[i]]++
	}
	ranges, at := make([]Range, len(shares)), 0
	for r, n := range counts {
		ranges[r] = Range{at, at + n}
		at += n
	}
	return ranges, nil
}

// checkRanges checks that there is one range for each rank and that the ranges
// are consecutive and cover all experts. Errors wrap distributed.ErrArgument.
func checkRanges(experts, ranks int, ranges []Range) error {
	if len(ranges) != ranks {
		return fmt.Errorf("moe: %d ranges of experts for %d ranks: %w", len(ranges), ranks, distributed.ErrArgument)
	}
	at := 0
	for r, x := range ranges {
		if x.Start != at || x.End < x.Start {
			return fmt.Errorf("moe: rank %d gets experts %d to %d; its range must begin at %d: %w", r, x.Start, x.End, at, distributed.ErrArgument)
		}
		at = x.End
	}
	if at != experts {
		return fmt.Errorf("moe: the ranges end at expert %d of %d: %w", at, experts, distributed.ErrArgument)
	}
	return nil
}
