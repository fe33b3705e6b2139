package moe

import (
	"fmt"
	"math"
	"slices"

	"ringmaster/distributed"
)

// Range is a run of experts [Start, End).
type Range struct{ Start, End int }

// Len is the number of experts in the range.
func (r Range) Len() int { return r.End - r.Start }

// Share divides the experts into one range for each share, one after the other
// in the order of the ranks. Rank r gets shares[r] of the sum, rounded by the
// method of the largest remainder: every rank has the whole part of its quota,
// and the experts left over go one each to the ranks with the largest
// remainders, of equal ones to the lower rank. So 256 experts in three equal
// shares are 86, 85 and 85. A rank whose share is far below one expert may get
// none. Shares must be positive and finite; only their ratios matter.
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

// checkRanges wants one range for each rank, which together are all experts in
// their order.
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
