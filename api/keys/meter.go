package keys

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// use is what a key has used. All versions of the key's line share it, so that an answer
// that began before the file changed counts against the current limit.
type use struct{ requests, tokens, renders meter }

// idle reports whether everything that was used has come back.
func (u *use) idle(now time.Time) bool {
	return u.requests.idle(now) && u.tokens.idle(now) && u.renders.idle(now)
}

// meter is a token bucket that holds a period's amount. Its limit may change.
type meter struct {
	mu     sync.Mutex // guards the fields below
	limit  Limit
	bucket *rate.Limiter // nil: there was no limit yet
}

// set changes the limit. The fraction of a period's amount that is left stays the same,
// because otherwise every change of a limit would give back what was used. While there is
// no limit nothing is counted, and what was used comes back at the last rate.
func (m *meter) set(l Limit, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l == m.limit {
		return
	}
	m.limit = l
	if l.N == 0 {
		return
	}
	before := m.bucket
	m.bucket = rate.NewLimiter(rate.Limit(float64(l.N)/l.Per.Seconds()), int(l.N))
	if before != nil {
		used := 1 - before.TokensAt(now)/float64(before.Burst())
		m.reserve(now, int(math.Ceil(used*float64(l.N))))
	}
}

// reserve takes n from the bucket, which may become negative; mu is held.
func (m *meter) reserve(now time.Time, n int) {
	for n > 0 { // one reservation takes at most a period's amount
		part := min(n, m.bucket.Burst())
		m.bucket.ReserveN(now, part)
		n -= part
	}
}

// take takes n, at most a period's amount, if they are available; otherwise it takes none
// and returns how long to wait.
func (m *meter) take(now time.Time, n int) (wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit.N == 0 {
		return 0
	}
	r := m.bucket.ReserveN(now, n)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// owe takes n, whether or not they are available.
func (m *meter) owe(now time.Time, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit.N > 0 {
		m.reserve(now, n)
	}
}

// wait returns how long to wait until one is available.
func (m *meter) wait(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit.N == 0 {
		return 0
	}
	lacking := 1 - m.bucket.TokensAt(now)
	if lacking <= 0 {
		return 0
	}
	return time.Duration(lacking / float64(m.bucket.Limit()) * float64(time.Second))
}

// idle reports whether the bucket is full.
func (m *meter) idle(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bucket == nil || m.bucket.TokensAt(now) >= float64(m.bucket.Burst())
}
