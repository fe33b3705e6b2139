package engine

import (
	"slices"

	"ringmaster/model"
)

// sequence is what the scheduler knows of a sequence of the model: what is committed.
type sequence struct {
	seq         model.SeqID
	tokens      []int32 // committed tokens
	peak        int     // greatest length, as the model counts it: it bounds rewinds and forks
	checkpoints []int   // lengths, ascending
	planned     []int   // checkpoints after the step in flight, nil if they stay
}

// forkable returns the greatest length, at most n, at which the sequence can be forked; 0
// for none. rewind is that of the model.
func (q *sequence) forkable(n, rewind int) int {
	if n = min(n, len(q.tokens)); q.peak-n <= rewind {
		return n
	}
	for _, at := range slices.Backward(q.checkpoints) {
		if at <= n {
			return at
		}
	}
	return 0
}

// forkPeak returns the peak of a fork at n.
func (q *sequence) forkPeak(n, rewind int) int {
	if q.peak-n <= rewind {
		return q.peak
	}
	return n + rewind
}

// upTo returns the lengths that are at most n; all are ascending.
func upTo(lengths []int, n int) []int {
	i, _ := slices.BinarySearch(lengths, n+1)
	return slices.Clone(lengths[:i])
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
