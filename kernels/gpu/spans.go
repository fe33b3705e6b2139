//go:build cgo

package gpu

import (
	"cmp"
	"slices"
)

// span is a range of bytes, counted from the beginning of a mapping.
type span struct{ from, to uint64 }

// compare orders spans by where they begin.
func (s span) compare(o span) int {
	return cmp.Or(cmp.Compare(s.from, o.from), cmp.Compare(s.to, o.to))
}

// pages widens a span to whole pages.
func (s span) pages(page uint64) span {
	return span{s.from / page * page, (s.to + page - 1) / page * page}
}

// merged returns few spans of whole pages that cover the used ones, sorted by both ends. Each
// used span lies wholly in one of them, except for those whose pages exceed limit bytes, which
// are left out. None exceeds the limit, and each page of them has bytes of a used span. Where
// the limit divides spans that share pages, these pages are in both of their spans.
func merged(used []span, page, limit uint64) (all []span) {
	sorted := slices.DeleteFunc(slices.Clone(used), func(s span) bool {
		p := s.pages(page)
		return s.from >= s.to || p.to-p.from > limit
	})
	slices.SortFunc(sorted, span.compare)
	for _, s := range sorted {
		s = s.pages(page)
		if n := len(all); n > 0 && s.from <= all[n-1].to && max(s.to, all[n-1].to)-all[n-1].from <= limit {
			all[n-1].to = max(s.to, all[n-1].to)
			continue
		}
		all = append(all, s)
	}
	return all
}

// cover returns the number of the first of the spans, from merged, that has all of s; -1 if
// none has.
func cover(all []span, s span) int {
	i, _ := slices.BinarySearchFunc(all, s.to, func(x span, to uint64) int { return cmp.Compare(x.to, to) })
	if i < len(all) && all[i].from <= s.from {
		return i
	}
	return -1
}
