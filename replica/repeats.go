package replica

import (
	"slices"
	"sync"
	"time"
)

// RepeatKind is the reason for a repeated computation.
type RepeatKind string

// The kinds of Repeat.
const (
	// InFloat32: exchanges repeated because a value was beyond the range of
	// float16.
	InFloat32 RepeatKind = "float32"
	// AfterLoss: steps repeated in the next epoch because the end of an epoch
	// interrupted them.
	AfterLoss RepeatKind = "loss"
)

// Repeat counts the repeated computations of one kind within a minute.
type Repeat struct {
	Kind        RepeatKind
	First, Last time.Time     // ends of the first and the last step in which it happened
	Steps       int           // in which it happened
	Exchanges   uint64        // repeated in these steps; of InFloat32
	Took        time.Duration // of AfterLoss: total time from the interruption of the steps to their end
}

const (
	// maxRepeats bounds the Repeats that are kept of each kind.
	maxRepeats = 50
	// repeatSpan is how much time a Repeat covers. It is a minute so that exchanges
	// that overflow in every step do not replace the older entries within seconds.
	repeatSpan = time.Minute
)

// repeats holds the last Repeats of each kind. Any goroutine may use it.
type repeats struct {
	mu   sync.Mutex
	list map[RepeatKind][]Repeat // oldest first
}

// add notes one step that ended now.
func (r *repeats) add(x Repeat) {
	now := time.Now()
	x.First, x.Last, x.Steps = now, now, 1
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		r.list = map[RepeatKind][]Repeat{}
	}
	list := r.list[x.Kind]
	if n := len(list); n > 0 && x.Last.Sub(list[n-1].First) < repeatSpan {
		last := &list[n-1]
		last.Last, last.Steps = x.Last, last.Steps+1
		last.Exchanges += x.Exchanges
		last.Took += x.Took
		return
	}
	if len(list) == maxRepeats {
		list = slices.Delete(list, 0, 1)
	}
	r.list[x.Kind] = append(list, x)
}

// get returns a copy of all, in the order of First.
func (r *repeats) get() []Repeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Concat(r.list[InFloat32], r.list[AfterLoss])
	slices.SortStableFunc(out, func(a, b Repeat) int { return a.First.Compare(b.First) })
	return out
}
