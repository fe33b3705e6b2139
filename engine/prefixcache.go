package engine

import (
	"slices"
	"time"
)

// entry is an entry of the prefix cache: the sequence of an ended request that the model
// still holds the KV cache of.
type entry struct {
	*sequence
	scope  string // of the request; hits are found within it only
	since  time.Time
	common map[*entry]common // by other entry of the scope

	id      requestID // of the request that has ended
	hints   hints
	hit     bool  // its request was a hit, or requests forked this entry
	awaited bool  // the answer called functions, so that the client will send results
	saved   bool  // it is on disk, or need not be
	cuts    []int // where its first file on disk may end, for others to continue it
	leaving bool  // it is evicted, and dropped as soon as it is saved
}

// common is what an entry has of the tokens of another one.
type common struct {
	tokens   int // equal ones at the beginning
	forkable int // of them, those that a request would not run because of the other entry
}

// hints are what a client says about how its requests belong together.
type hints struct {
	group  string // requests of one program, such as its subagents; "": not known
	marked bool   // the client wants the prompt to be kept
}

// keep puts the sequence of an ended request into the prefix cache as the most recently
// used entry.
func (s *scheduler) keep(t *task) {
	s.insert(&entry{
		sequence: t.sequence, scope: t.scope, since: s.now,
		id: t.id, hints: t.hints, hit: t.cached > 0, awaited: t.awaited, cuts: t.branches,
		saved: t.partial > 0, // others could not continue it from disk
	})
	s.trimCache()
}

// insert adds an entry as the most recently used one.
func (s *scheduler) insert(k *entry) {
	k.common = map[*entry]common{}
	var near *entry // it has the most tokens of k
	for _, other := range s.prefixCache {
		if other.scope != k.scope {
			continue
		}
		// What the others have in common with near tells most of what k has, so that a
		// long beginning that all of them have is compared once.
		n, known := 0, false
		if near != nil {
			a, b := k.common[near].tokens, near.common[other].tokens
			n, known = min(a, b), a != b
		}
		if !known {
			n += commonPrefix(k.tokens[n:], other.tokens[n:])
		}
		ofOther, _ := s.reusable(other.sequence, n)
		ofK, _ := s.reusable(k.sequence, n)
		k.common[other], other.common[k] = common{n, ofOther}, common{n, ofK}
		if near == nil || n > k.common[near].tokens {
			near = other
		}
	}
	s.prefixCache = append(s.prefixCache, k)
}

// removeEntry takes an entry out of the prefix cache; its sequence stays.
func (s *scheduler) removeEntry(k *entry) {
	s.prefixCache = slices.DeleteFunc(s.prefixCache, func(other *entry) bool { return other == k })
	for other := range k.common {
		delete(other.common, k)
	}
	k.common = nil // it may stay until it is saved, and keep others alive
}

// own returns how many tokens only this entry has (at least 1): neither another entry among
// these has them, nor a running request that began with a fork of it.
func (s *scheduler) own(k *entry, among []*entry) int {
	others := 0
	for _, other := range among {
		others = max(others, k.common[other].forkable)
	}
	for _, t := range s.active {
		if t.forked == k.sequence {
			others = max(others, t.cached)
		}
	}
	return max(len(k.tokens)-others, 1)
}

// What is evicted first is an entry of a scope that holds at least the average of all
// scopes, so that one key's conversations never push out those of a key that holds less;
// of these the one of least value, but the entry that was kept last only when there is no
// other, because its client is the likeliest to come back. The value is the prompt tokens
// that the entry alone would save, times how likely they are asked for again, divided by its
// share of the places or of the memory, whichever is scarcer. So the requests that make
// titles evict each other, not a long conversation, unless there is but one place; and a
// conversation that no request continues is evicted in time, however long it is. This is
// GreedyDual-Size-Frequency (Cherkasova, HPL-98-69, 1998) with an age in place of its
// clock; TestPolicy compares it with LRU and with knowing the future.
const (
	// The likelihood falls as 1/(1 + age/fading): it halves in this time, and then falls
	// more and more slowly.
	fading = 5 * time.Minute

	awaitedWeight = 8 // an answer that called functions is nearly always continued
	hitWeight     = 2 // a reused entry is often reused again
	markedWeight  = 2
)

// value returns the value of an entry among others. It has no unit; only comparisons of
// values are meaningful.
func (s *scheduler) value(k *entry, among []*entry) float64 {
	if s.worth != nil {
		return s.worth(k, among)
	}
	v := float64(s.own(k, among))
	for _, w := range []struct {
		holds  bool
		weight float64
	}{{k.awaited, awaitedWeight}, {k.hit, hitWeight}, {k.hints.marked, markedWeight}} {
		if w.holds {
			v *= w.weight
		}
	}
	age := max(s.now.Sub(k.since), 0)
	v /= 1 + age.Seconds()/fading.Seconds()
	return v / s.share(k)
}

// share returns an entry's part of the places or of the memory, whichever is scarcer.
func (s *scheduler) share(k *entry) float64 {
	share := 1 / float64(max(s.cacheSize, 1))
	if s.mem.limited() {
		share = max(share, float64(s.mem.of(k.seq))/float64(s.mem.budget))
	}
	return share
}

// await records that the answer of a request, which has ended or is about to, called
// functions.
func (s *scheduler) await(id requestID) {
	if t := s.find(id); t != nil {
		t.awaited = true
	}
	for _, k := range append(slices.Clip(s.prefixCache), s.leaving...) {
		if k.id == id {
			k.awaited = true
		}
	}
}

// refresh renews the entries of a group that wait for results, because a new request
// shows that the group is alive, however long its subagents take.
func (s *scheduler) refresh(scope, group string) {
	for _, k := range s.prefixCache {
		if group != "" && k.awaited && k.hints.group == group && k.scope == scope {
			k.since = s.now
		}
	}
}

// trimCache evicts what the prefix cache may not hold. A request that runs beyond
// limits.active takes the place of an entry, so that active and cacheSize together bound
// the number of sequences with a KV cache.
func (s *scheduler) trimCache() {
	for len(s.prefixCache) > s.cacheSize-s.extra() {
		k := s.leastValuable(s.prefixCache, nil)
		s.mem.counts.crowded++
		if s.disk != nil && !k.saved {
			s.removeEntry(k)
			k.leaving = true
			s.leaving = append(s.leaving, k)
			continue
		}
		s.evict(k)
	}
	s.trimLeaving()
}

// leastValuable returns the entry to evict next among these, the most recently used last,
// but not except, which counts for its scope; among equals the least recently used. nil if
// there is no other.
func (s *scheduler) leastValuable(entries []*entry, except *entry) (least *entry) {
	held, all := map[string]float64{}, 0.0 // shares, by scope that could give up an entry
	hold := func(k *entry) {
		share := s.share(k)
		held[k.scope] += share
		all += share
	}
	for _, k := range entries {
		if k != except {
			hold(k)
		}
	}
	if except != nil && held[except.scope] > 0 {
		hold(except)
	}
	worth, average := 0.0, all/float64(len(held))*(1-1e-9) // rounded sums must leave a scope
	for i, k := range entries {
		if k == except || held[k.scope] < average || i == len(entries)-1 && least != nil {
			continue
		}
		if v := s.value(k, entries); least == nil || v < worth {
			least, worth = k, v
		}
	}
	return least
}

// victims returns entries other than except that together hold so many bytes, or all of
// them: those to evict first, without those that are not needed because of others among
// them.
func (s *scheduler) victims(bytes int64, except *entry) (out []*entry) {
	left, sum := slices.Clone(s.prefixCache), int64(0)
	for sum < bytes {
		k := s.leastValuable(left, except)
		if k == nil {
			break
		}
		left = slices.DeleteFunc(left, func(other *entry) bool { return other == k })
		out, sum = append(out, k), sum+s.mem.of(k.seq)
	}
	for i := len(out) - 1; i >= 0; i-- {
		if left := sum - s.mem.of(out[i].seq); left >= bytes {
			out, sum = slices.Delete(out, i, i+1), left
		}
	}
	return out
}

// evict makes the next step drop an entry of the prefix cache.
func (s *scheduler) evict(k *entry) {
	s.mem.counts.evictedTokens += uint64(len(k.tokens))
	s.dropEntry(k)
}

func (s *scheduler) dropEntry(k *entry) {
	s.drop = append(s.drop, k.seq)
	s.removeEntry(k)
}

// expire makes the next step drop the entries that have not been used for limits.keepFor.
func (s *scheduler) expire() {
	if s.keepFor == 0 {
		return
	}
	for _, k := range slices.Clone(s.prefixCache) {
		if s.now.Sub(k.since) >= s.keepFor {
			s.mem.counts.expired++
			s.dropEntry(k)
		}
	}
}

// untilExpiry returns the time until the next entry of the prefix cache expires; ok is
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
