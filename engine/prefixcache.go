package engine

import (
	"slices"
	"time"

	"ringmaster/model"
)

// session is an entry of the prefix cache: a sequence whose request has ended and
// whose KV cache the model still holds.
type session struct {
	seq    model.SeqID
	tokens []int32 // committed tokens
	peak   int     // as of a task
	scope  string  // of the request; hits are found within it only
	since  time.Time
	rank   float64 // see keep
}

// keep puts the sequence of an ended request into the prefix cache as the most
// recently used entry.
//
// What is evicted first follows GreedyDual-Size (Cao and Irani, Cost-Aware WWW
// Proxy Caching Algorithms, 1997): an entry ranks by what it saves for its size,
// prompt tokens per byte, on top of the rank of the entry that was evicted last.
// So entries of little value go first, and one that is not used any more goes
// however valuable it was. Where sizes are not known, that is least recently used.
func (s *scheduler) keep(t *task) {
	k := &session{seq: t.seq, tokens: t.tokens, peak: t.peak, scope: t.scope, since: s.now}
	value := 1.0
	if bytes := s.mem.of(t.seq); bytes > 0 {
		value = float64(len(t.tokens)) / float64(bytes)
	}
	k.rank = s.evictedRank + value
	s.prefixCache = append(s.prefixCache, k)
	s.trimCache()
}

// trimCache evicts what the prefix cache may not hold: a request that runs beyond
// limits.active takes the place of an entry, so that the number of sequences with a
// KV cache is bounded by active and cacheSize together.
func (s *scheduler) trimCache() {
	for len(s.prefixCache) > s.cacheSize-s.extra() {
		s.evict(s.leastValuable(nil))
	}
}

// leastValuable is the entry that is evicted next, other than except; of equals the
// least recently used. nil if there is none.
func (s *scheduler) leastValuable(except *session) (least *session) {
	for _, k := range s.prefixCache {
		if k != except && (least == nil || k.rank < least.rank) {
			least = k
		}
	}
	return least
}

// evict makes the next step drop an entry of the prefix cache.
func (s *scheduler) evict(k *session) {
	s.evictedRank = max(s.evictedRank, k.rank)
	s.forgetEntry(k)
}

func (s *scheduler) forgetEntry(k *session) {
	s.drop = append(s.drop, k.seq)
	s.prefixCache = slices.DeleteFunc(s.prefixCache, func(other *session) bool { return other == k })
}

// expire makes the next step drop the entries that have not been used for the time
// that entries are kept.
func (s *scheduler) expire() {
	if s.keepFor == 0 {
		return
	}
	for _, k := range slices.Clone(s.prefixCache) {
		if s.now.Sub(k.since) >= s.keepFor {
			s.mem.counts.expired++
			s.forgetEntry(k)
		}
	}
}

// untilExpiry is the time until the next entry of the prefix cache expires; ok is
// false if none does.
func (s *scheduler) untilExpiry() (d time.Duration, ok bool) {
	if s.keepFor == 0 {
		return 0, false
	}
	for _, k := range s.prefixCache {
		if left := s.keepFor - s.now.Sub(k.since); !ok || left < d {
			d, ok = left, true
		}
	}
	return max(d, 0), ok
}
