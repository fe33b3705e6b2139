//go:build cgo

package gpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMerged compares with a page table: each weight lies in one span, which cover looks up; the
// spans have the pages of the weights and no other, none exceeds the limit, and two that are
// side by side could not be one.
func TestMerged(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 1))
	for range 20000 {
		page, most := uint64(1)<<r.UintN(5), 1+r.Uint64N(40)
		limit := page * most
		if r.UintN(2) == 0 {
			limit += r.Uint64N(page) // no multiple of the page
		}
		room := page * (1 + r.Uint64N(64))
		var used []span
		for range r.UintN(20) {
			from := r.Uint64N(room)
			s := span{from, from + r.Uint64N(min(room-from, 1+r.Uint64N(room))+1)}
			used = append(used, s)
			if r.UintN(3) == 0 { // twice, or a part of it
				used = append(used, span{s.from + (s.to-s.from)/3, s.to})
			}
		}
		r.Shuffle(len(used), func(i, j int) { used[i], used[j] = used[j], used[i] })
		given := slices.Clone(used)
		all := merged(used, page, limit)
		require.Equal(t, given, used, "the list is the caller's")

		touched := map[uint64]bool{} // pages with a byte of a weight that fits
		for _, s := range used {
			p := s.pages(page)
			if fits := s.from < s.to && p.to-p.from <= limit; !fits {
				continue
			}
			for at := p.from; at < p.to; at += page {
				touched[at] = true
			}
			i := cover(all, s)
			require.GreaterOrEqual(t, i, 0)
			require.True(t, all[i].from <= s.from && s.to <= all[i].to)
		}
		covered := map[uint64]bool{}
		for i, s := range all {
			require.Less(t, s.from, s.to)
			require.LessOrEqual(t, s.to-s.from, limit)
			require.Zero(t, s.from%page+s.to%page)
			for at := s.from; at < s.to; at += page {
				covered[at] = true
			}
			if i > 0 {
				before := all[i-1]
				require.True(t, before.from < s.from && before.to < s.to)
				if s.from <= before.to {
					require.Greater(t, s.to-before.from, limit, "these could be one")
				}
			}
		}
		require.Equal(t, touched, covered)

		from := r.Uint64N(room)
		s := span{from, from + 1 + r.Uint64N(page*most)}
		has := slices.ContainsFunc(all, func(x span) bool { return x.from <= s.from && s.to <= x.to })
		require.Equal(t, has, cover(all, s) >= 0)
	}
}
