package cluster

import (
	"sync"
	"time"
)

// A log has at most rationLines lines about strangers in each rationPeriod.
const (
	rationLines  = 32
	rationPeriod = 10 * time.Second
)

// ration bounds how many log lines strangers can cause.
type ration struct {
	mu      sync.Mutex
	began   time.Time // of the period
	lines   int       // in the period, omitted ones included
	omitted int       // since the last line
}

// take reports whether a line may be logged now, and how many were omitted
// before it.
func (r *ration) take() (ok bool, omitted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.began) >= rationPeriod {
		r.began, r.lines = now, 0
	}
	if r.lines++; r.lines > rationLines {
		r.omitted++
		return false, 0
	}
	omitted, r.omitted = r.omitted, 0
	return true, omitted
}
