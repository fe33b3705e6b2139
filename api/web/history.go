package web

import (
	"sync"
	"time"
)

// The cluster page shows the last hour in samples of SampleEvery.
const (
	SampleEvery = 10 * time.Second
	samples     = int(time.Hour / SampleEvery)
)

// Sample is what a server did during SampleEvery, and its state at the end of that time.
type Sample struct {
	Time    time.Time `json:"time"`
	Prefill float64   `json:"prefill"` // prompt tokens per second that were run
	Decode  float64   `json:"decode"`  // generated tokens per second
	Active  int       `json:"active"`  // requests that run
	Queued  int       `json:"queued"`
	Members int       `json:"members"` // ranks that compute
	Ranks   int       `json:"ranks"`   // of the whole group
}

// Counts are the numbers from which samples are made. Prefilled and Generated only grow.
type Counts struct {
	Prefilled, Generated           uint64
	Active, Queued, Members, Ranks int
}

// History keeps the samples of the last hour.
type History struct {
	mu     sync.Mutex
	ring   [samples]Sample
	next   int // index of the oldest sample once the ring is full
	full   bool
	last   Counts
	lastAt time.Time
}

// Add makes a sample of what changed since the call before. The first call makes none.
func (h *History) Add(now time.Time, c Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seconds := now.Sub(h.lastAt).Seconds()
	if !h.lastAt.IsZero() && seconds > 0 {
		h.ring[h.next] = Sample{Time: now, Prefill: float64(c.Prefilled-h.last.Prefilled) / seconds, Decode: float64(c.Generated-h.last.Generated) / seconds,
			Active: c.Active, Queued: c.Queued, Members: c.Members, Ranks: c.Ranks}
		if h.next++; h.next == samples {
			h.next, h.full = 0, true
		}
	}
	h.last, h.lastAt = c, now
}

// Samples returns the samples, the oldest first.
func (h *History) Samples() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Sample
	if h.full {
		out = append(out, h.ring[h.next:]...)
	}
	return append(out, h.ring[:h.next]...)
}
