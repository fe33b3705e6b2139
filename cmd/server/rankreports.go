package main

import (
	"context"
	"sync"
	"time"

	"ringmaster/replica"
)

// reportWait bounds how long the followers' reports are waited for; after it the
// previous ones are shown.
const reportWait = 500 * time.Millisecond

// rankReports asks the ranks for their reports, for all who want them.
type rankReports struct {
	steps *replica.Leader

	mu   sync.Mutex
	last []replica.Report
	at   time.Time // when they were asked for
}

// get returns the reports of all ranks, [size], no older than age unless not all ranks
// answer in time; then they are the previous ones, none before the first.
func (r *rankReports) get(ctx context.Context, age time.Duration) []replica.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < age {
		return r.last
	}
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	if got, err := r.steps.Reports(ctx); err == nil {
		r.last = got
	}
	r.at = time.Now()
	return r.last
}
