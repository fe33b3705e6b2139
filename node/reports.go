package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"ringmaster/replica"
)

// reportWait bounds how long the followers' reports are waited for; after it the
// previous ones are shown.
const reportWait = 500 * time.Millisecond

// reports asks the ranks for their reports, for all who want them.
type reports struct {
	mu   sync.Mutex
	last []replica.Report
	at   time.Time // when they were asked for
	told string    // the last that was logged
}

// warn logs that ranks report what cannot be right: once, until they no longer do.
func (r *reports) warn(answered bool, err error) {
	if !answered {
		return // the ranks are busy, or no epoch runs
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && r.told == "" {
		slog.Warn("a rank's report is left out of the metrics: what it says cannot be right", "error", text)
	}
	r.told = text
}

// RecentReports returns the reports of all ranks, [size], no older than age unless not all
// ranks answer in time; then they are the previous ones, none before the first.
func (l *Leader) RecentReports(ctx context.Context, age time.Duration) []replica.Report {
	r := &l.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < age {
		return r.last
	}
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	got, err := l.Steps.Reports(ctx)
	if got != nil {
		r.last = got
	}
	r.warn(got != nil, err)
	r.at = time.Now()
	return r.last
}
