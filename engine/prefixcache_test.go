package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request renews the waiting entries of its group, but only within its scope, so that
// no other client can name the group.
func TestRefreshStaysInItsScope(t *testing.T) {
	start := time.Unix(0, 0)
	s := &scheduler{limits: limits{active: 4, queue: 9, tokenBudget: 8, prefillChunk: 8, cacheSize: 4, rewind: 1}, now: start}
	for _, scope := range []string{"a", "b"} {
		id := s.add("", []int32{1, 2, 3}, false, scope, hints{group: "g"}, 1, 0)
		_, ok := s.plan()
		require.True(t, ok)
		s.commit()
		s.await(id) // before its end, which is equivalent to after it
		s.finish(id)
	}
	s.now = start.Add(time.Hour)
	s.add("", []int32{9}, false, "a", hints{group: "g"}, 1, 0)
	require.Len(t, s.prefixCache, 2)
	for _, k := range s.prefixCache {
		require.True(t, k.awaited)
		require.Equal(t, k.scope == "a", k.since.Equal(s.now), k.scope)
	}
	before := s.prefixCache[0].since
	s.add("", []int32{9}, false, "a", hints{}, 1, 0) // without a group, as most are
	require.Equal(t, before, s.prefixCache[0].since)
}
