package replica

import (
	"slices"
	"sync"
	"time"
)

// RepeatKind is why something was computed again.
type RepeatKind string

// The kinds of Repeat.
const (
	// InFloat32: exchanges whose sum had a value beyond the range of float16.
	InFloat32 RepeatKind = "float32"
	// AfterLoss: steps that the end of an epoch had interrupted, in the next one.
	AfterLoss RepeatKind = "loss"
)

// Repeat is what was computed again within a minute, for one reason.
type Repeat struct {
	Kind        RepeatKind
	First, Last time.Time     // ends of the first and the last step in which it happened
	Steps       int           // in which it happened
	Exchanges   uint64        // repeated in these steps; of InFloat32
	Took        time.Duration // from the interruption of the steps to their end, in sum; of AfterLoss
}

const (
	// maxRepeats is how many Repeats of a kind are kept.
	maxRepeats = 50
	// repeatSpan is how much time a Repeat covers, so that exchanges that overflow in
	// every step do not push out within seconds what happened before.
	repeatSpan = time.Minute
)

// repeats are the last Repeats of each kind. Any goroutine may use it.
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
