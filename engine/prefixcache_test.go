package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/model"
)

// A request renews the waiting entries of its group, but only within its scope, so that
// no other client can name the group.
func TestRefreshStaysInItsScope(t *testing.T) {
	start := time.Unix(0, 0)
	s := &scheduler{limits: limits{active: 4, queue: 9, tokenBudget: 8, prefillChunk: 8, cacheSize: 4, rewind: 1, leastShared: leastShared}, now: start}
	for _, scope := range []string{"a", "b"} {
		id := s.add("", []int32{1, 2, 3}, nil, false, scope, hints{group: "g"}, 1, 0)
		_, ok := s.plan()
		require.True(t, ok)
		s.commit()
		s.await(id) // before its end, which is equivalent to after it
		s.finish(id)
	}
	s.now = start.Add(time.Hour)
	s.add("", []int32{9}, nil, false, "a", hints{group: "g"}, 1, 0)
	require.Len(t, s.prefixCache, 2)
	for _, k := range s.prefixCache {
		require.True(t, k.awaited)
		require.Equal(t, k.scope == "a", k.since.Equal(s.now), k.scope)
	}
	before := s.prefixCache[0].since
	s.add("", []int32{9}, nil, false, "a", hints{}, 1, 0) // without a group, as most are
	require.Equal(t, before, s.prefixCache[0].since)
}

// serve runs a request of a scope to its end, with an answer of one token, and returns how
// many of its prompt tokens were cached.
func serve(t *testing.T, s *scheduler, scope string, prompt []int32) int {
	t.Helper()
	id := s.add(scope, prompt, nil, false, scope, hints{}, 1, 0)
	for range 1000 {
		if _, ok := s.plan(); !ok {
			break
		}
		parts, _ := s.commit()
		for _, p := range parts {
			if p.last {
				require.Equal(t, id, p.task.id)
				s.finish(id)
				return p.task.cached
			}
		}
	}
	t.Fatal("the request did not run")
	return 0
}

// cacheScheduler returns a scheduler in which a token takes a byte of the budget.
func cacheScheduler(t *testing.T, budget int64) *scheduler {
	info := model.Info{MaxTokens: 4096}
	opts, err := Options{MaxActive: 1, PrefillChunk: 4096}.withDefaults(info)
	require.NoError(t, err)
	s := newScheduler(info, opts)
	s.mem.size, s.mem.budget, s.now = func(n int) int64 { return int64(n) }, budget, time.Unix(0, 0)
	return s
}

// chat returns the first tokens of conversation n.
func chat(n, tokens int) []int32 {
	out := make([]int32, tokens)
	for i := range out {
		out[i] = int32(n<<16 + i)
	}
	return out
}

// TestFollowUps: twenty chats beside eight heavy conversations that were continued before
// find their own entries: all at once if memory suffices, two at once if it is full.
func TestFollowUps(t *testing.T) {
	for name, tc := range map[string]struct {
		budget int64
		chats  int // that are under way at the same time
	}{"enough": {30_000, 20}, "full": {16_250, 2}} {
		t.Run(name, func(t *testing.T) {
			s := cacheScheduler(t, tc.budget)
			for n := range 8 {
				serve(t, s, "", chat(n, 1900))
				require.Equal(t, 1900, serve(t, s, "", chat(n, 2000)))
			}
			for first := 8; first < 28; first += tc.chats {
				for n := first; n < first+tc.chats; n++ {
					serve(t, s, "", chat(n, 200))
					s.now = s.now.Add(time.Second)
				}
				for n := first; n < first+tc.chats; n++ {
					require.Equal(t, 200, serve(t, s, "", chat(n, 230)), "chat %d", n)
					s.now = s.now.Add(time.Second)
				}
			}
		})
	}
}

// TestAScopeKeepsItsShare: a key that floods the cache evicts its own entries, not those
// of a key that holds less than it does.
func TestAScopeKeepsItsShare(t *testing.T) {
	for _, budget := range []int64{4_000, 0} { // memory is scarce, or places are
		s := cacheScheduler(t, budget)
		if budget == 0 {
			s.mem.size, s.cacheSize = nil, 8
		}
		for n := range 3 {
			serve(t, s, "small", chat(n, 100))
		}
		for n := range 50 {
			for range 2 { // continued ones are worth more
				serve(t, s, "flood", chat(100+n, 500))
			}
			s.now = s.now.Add(time.Minute)
		}
		for n := range 3 {
			require.Equal(t, 100, serve(t, s, "small", chat(n, 120)), "budget %d, chat %d", budget, n)
		}
	}
}

// TestAScopeThatContinues: the entry that a request continues counts for its scope, so that
// the scope gives up another one of its own.
func TestAScopeThatContinues(t *testing.T) {
	s := cacheScheduler(t, 118)
	serve(t, s, "b", chat(0, 100))
	serve(t, s, "b", chat(1, 4))
	serve(t, s, "a", chat(2, 5))
	serve(t, s, "c", chat(3, 8))
	require.Equal(t, 100, serve(t, s, "b", chat(0, 103)))
	require.Equal(t, 5, serve(t, s, "a", chat(2, 6)))
	require.Equal(t, 8, serve(t, s, "c", chat(3, 9)))
}

// TestCommonTokensOfEntries: each entry knows what each other one of its scope has of its
// tokens, although most of them were never compared.
func TestCommonTokensOfEntries(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	s := &scheduler{limits: limits{rewind: 2}}
	for n := range 300 {
		q := &sequence{seq: model.SeqID(n), checkpoints: []int{3, 6}}
		for range 6 + random.IntN(20) {
			q.tokens = append(q.tokens, int32(random.IntN(8)/7))
		}
		q.peak = len(q.tokens)
		s.insert(&entry{sequence: q, scope: []string{"a", "b"}[random.IntN(2)]})
		if random.IntN(2) == 0 {
			s.removeEntry(s.prefixCache[random.IntN(len(s.prefixCache))])
		}
	}
	for _, k := range s.prefixCache {
		for _, other := range s.prefixCache {
			if got, ok := k.common[other]; other == k || other.scope != k.scope {
				require.False(t, ok)
			} else {
				n := commonPrefix(k.tokens, other.tokens)
				require.Equal(t, common{n, other.forkable(n, 2)}, got)
			}
		}
	}
}

// TestWhatARequestRemembersIsBounded: a request that waits while others come and go does not
// remember all of them.
func TestWhatARequestRemembersIsBounded(t *testing.T) {
	s := &scheduler{limits: limits{active: 2, queue: 9, tokenBudget: 64, prefillChunk: 64, cacheSize: 2, rewind: 1, leastShared: leastShared}, now: time.Unix(0, 0)}
	waiting := &task{id: 1 << 40, sequence: &sequence{}, prompt: []int32{1, 2, 3}}
	for i := range int32(50) {
		id := s.add("", []int32{1, 2, 4 + i}, nil, false, "", hints{}, 1, 0)
		_, ok := s.plan()
		require.True(t, ok)
		s.awaits(waiting, s.findPrefix(waiting).n)
		s.commit()
		s.finish(id)
	}
	require.LessOrEqual(t, len(waiting.shared), 10)
	require.LessOrEqual(t, len(waiting.matches), 10)
	require.NotEmpty(t, waiting.shared)
}
