package engine

import (
	"slices"

	"ringmaster/model"
)

// sequence is what the scheduler knows about a sequence of the model. All but planned is
// committed.
type sequence struct {
	seq         model.SeqID
	tokens      []int32 // committed tokens
	peak        int     // greatest length, as the model counts it: it bounds rewinds and forks
	cuts        int     // rewinds that removed tokens; each invalidates matches
	checkpoints []int   // lengths, ascending
	partial     int     // up to which length it is partial, 0 if it is whole; see model.Entry.Until
	replayed    int     // up to which length it runs tokens again (model.Fork.Replay), 0 if it does not
	planned     []int   // checkpoints after the step in flight; nil: it does not change them
}

// has reports whether the model has the state of the sequence at n tokens without a
// checkpoint.
func (q *sequence) has(n, rewind int) bool { return q.partial == 0 && q.peak-n <= rewind }

// forkable returns the greatest length, at most n, at which the sequence can be forked; 0
// for none. rewind is that of the model.
func (q *sequence) forkable(n, rewind int) int {
	if n = min(n, len(q.tokens)); q.has(n, rewind) {
		return n
	}
	for _, at := range slices.Backward(q.checkpoints) {
		if at <= n {
			return at
		}
	}
	return 0
}

// forkableFrom returns the least length, at least n and 1, at which the sequence can be
// forked; it may be more than the sequence has.
func (q *sequence) forkableFrom(n, rewind int) int {
	n = max(n, 1)
	least := max(n, q.peak-rewind)
	if q.partial > 0 {
		least = max(n, q.partial)
	}
	for _, at := range q.checkpoints {
		if at >= n {
			return min(least, at)
		}
	}
	return least
}

// reusable returns the position from which a request runs its prompt, if that begins with the
// first n tokens of a sequence: the greatest length up to n at which the sequence can be forked
// or, with replay, where a fork of n tokens begins to run them again.
func (s *scheduler) reusable(q *sequence, n int) (from int, replay bool) {
	n = min(n, len(q.tokens))
	from = q.forkable(n, s.rewind)
	if s.replay > 0 && n-s.replay > from {
		return n - s.replay, true
	}
	return from, false
}

// reusableFrom returns the least number of equal tokens for which reusable is at least n and
// 1; it may be more than the sequence has.
func (s *scheduler) reusableFrom(q *sequence, n int) int {
	least := q.forkableFrom(n, s.rewind)
	if s.replay > 0 {
		least = min(least, max(n, 1)+s.replay)
	}
	return least
}

// forkPeak returns the peak of a fork at n, as model.Fork says; replayed is as in a hit.
func (q *sequence) forkPeak(n, replayed, rewind int) int {
	if replayed == 0 && q.has(n, rewind) {
		return q.peak
	}
	return n + rewind
}

// upTo returns a copy of the ascending lengths that are at most n.
func upTo(lengths []int, n int) []int {
	i, _ := slices.BinarySearch(lengths, n+1)
	return slices.Clone(lengths[:i])
}

// commonPrefix returns how many tokens at the beginning of a and b are the same. It compares
// blocks first, which is several times faster than single tokens.
func commonPrefix(a, b []int32) (n int) {
	const block = 64
	most := min(len(a), len(b))
	for n+block <= most && *(*[block]int32)(a[n:]) == *(*[block]int32)(b[n:]) {
		n += block
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}
