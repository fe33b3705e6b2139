package deferred

import "slices"

// span is the bytes [begin, end) of an allocation.
type span struct{ begin, end int }

// spans are disjoint, not empty, and in ascending order.
type spans []span

// add is the union of a and s.
func (a spans) add(s span) spans {
	if s.begin >= s.end {
		return a
	}
	var all spans
	for _, x := range a {
		if x.end < s.begin || x.begin > s.end {
			all = append(all, x)
			continue
		}
		s = span{min(s.begin, x.begin), max(s.end, x.end)}
	}
	at, _ := slices.BinarySearchFunc(all, s, func(x, s span) int { return x.begin - s.begin })
	return slices.Insert(all, at, s)
}

// remove is a without s.
func (a spans) remove(s span) spans {
	var all spans
	for _, x := range a {
		if left := (span{x.begin, min(x.end, s.begin)}); left.begin < left.end {
			all = append(all, left)
		}
		if right := (span{max(x.begin, s.end), x.end}); right.begin < right.end {
			all = append(all, right)
		}
	}
	return all
}

// gaps is s without a.
func (a spans) gaps(s span) spans {
	gaps := spans{}.add(s)
	for _, x := range a {
		gaps = gaps.remove(x)
	}
	return gaps
}
