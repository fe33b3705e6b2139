package parallel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"ringmaster/distributed"
)

// Range is a range [Start, End) of something divided: experts, groups of attention
// heads, rows of the output head. In JSON it is [start, end].
type Range struct{ Start, End int }

// Len returns the number of elements in the range.
func (r Range) Len() int { return r.End - r.Start }

// And returns the intersection of two ranges, empty if they are disjoint.
func (r Range) And(o Range) Range {
	start := max(r.Start, o.Start)
	return Range{start, max(start, min(r.End, o.End))}
}

// String returns the range as [start, end).
func (r Range) String() string { return fmt.Sprintf("[%d, %d)", r.Start, r.End) }

// MarshalJSON implements json.Marshaler.
func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{r.Start, r.End}) }

// UnmarshalJSON implements json.Unmarshaler: two integers, or an error.
func (r *Range) UnmarshalJSON(b []byte) error {
	var ends []int
	if err := json.Unmarshal(b, &ends); err != nil {
		return fmt.Errorf("a range: %w", err)
	}
	if len(ends) != 2 {
		return fmt.Errorf("a range has %d numbers; expected start and end", len(ends))
	}
	r.Start, r.End = ends[0], ends[1]
	return nil
}

// Divide divides n things into consecutive ranges, one for each rank, in proportion
// to shares [ranks], rounded by the largest-remainder method: every rank gets the
// integer part of its quota, and the ranks with the largest fractions get one more
// each until none remain; of equal fractions the lower rank is first. For example,
// three equal shares of 256 are 86, 85 and 85. A rank with a quota below one may
// get none. Shares must be positive and finite, otherwise an error names the rank;
// only their ratios matter.
func Divide(n int, shares []float64) ([]Range, error) {
	if n < 1 || len(shares) == 0 {
		return nil, fmt.Errorf("%d parts cannot be divided among %d ranks", n, len(shares))
	}
	for r, s := range shares {
		if !(s > 0) || math.IsInf(s, 0) {
			return nil, fmt.Errorf("the share of rank %d is %v; expected a positive number", r, s)
		}
	}
	largest := slices.Max(shares) // so that no sum overflows
	sum := 0.0
	for _, s := range shares {
		sum += s / largest
	}
	counts, rest := make([]int, len(shares)), make([]float64, len(shares))
	order, left := make([]int, len(shares)), n
	for r, s := range shares {
		quota := float64(n) * (s / largest) / sum
		counts[r] = int(quota)
		rest[r], order[r] = quota-math.Trunc(quota), r
		left -= counts[r]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for i := range left { // fewer than ranks, because every remainder is below 1
		counts[order[i]]++
	}
	ranges, at := make([]Range, len(shares)), 0
	for r, count := range counts {
		ranges[r] = Range{at, at + count}
		at += count
	}
	return ranges, nil
}

// CheckDivision checks that ranges divide n things of the given name, such as
// "experts", among the ranks: one range for each rank, consecutive, together all of
// them. Errors wrap distributed.ErrArgument.
func CheckDivision(what string, n, ranks int, ranges []Range) error {
	if len(ranges) != ranks {
		return fmt.Errorf("%d ranges of %s for %d ranks: %w", len(ranges), what, ranks, distributed.ErrArgument)
	}
	at := 0
	for r, x := range ranges {
		if x.Start != at || x.End < x.Start {
			return fmt.Errorf("rank %d gets %s %d to %d; its range must begin at %d: %w", r, what, x.Start, x.End, at, distributed.ErrArgument)
		}
		at = x.End
	}
	if at != n {
		return fmt.Errorf("the ranges of %s end at %d of %d: %w", what, at, n, distributed.ErrArgument)
	}
	return nil
}
