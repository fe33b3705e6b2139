package keys

import (
	"time"

	"golang.org/x/time/rate"
)

// Holder is a key with what it has used. Its methods may be called at once.
type Holder struct {
	Key
	requests, tokens *rate.Limiter // nil: no limit
}

// newHolder makes the holder of a key. before, if not nil, is the one that the key
// had in an earlier version of the file: what was used stays used while the limit
// stays the same.
func newHolder(k Key, before *Holder) *Holder {
	h := &Holder{Key: k, requests: limiter(k.Requests), tokens: limiter(k.Tokens)}
	if before != nil && before.Requests == k.Requests {
		h.requests = before.requests
	}
	if before != nil && before.Tokens == k.Tokens {
		h.tokens = before.tokens
	}
	return h
}

// limiter is a token bucket that holds a period's worth.
func limiter(l Limit) *rate.Limiter {
	if l.N == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(l.N)/l.Per.Seconds()), int(l.N))
}

// Expired reports whether the key's time is over.
func (h *Holder) Expired(now time.Time) bool { return !h.Expires.IsZero() && !now.Before(h.Expires) }

// Request counts a request. If the limit does not allow it now, it is not counted,
// and the result is how long to wait.
func (h *Holder) Request(now time.Time) (wait time.Duration) {
	if h.requests == nil {
		return 0
	}
	r := h.requests.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// Wait returns how long to wait until there are tokens to use, 0 if there are now.
// A request may use more than are left, since nobody knows how long its answer will
// be; the key then waits until that has come back.
func (h *Holder) Wait(now time.Time) time.Duration {
	if h.tokens == nil {
		return 0
	}
	lacking := 1 - h.tokens.TokensAt(now)
	if lacking <= 0 {
		return 0
	}
	return time.Duration(lacking / float64(h.tokens.Limit()) * float64(time.Second))
}

// Use counts tokens that were used.
func (h *Holder) Use(now time.Time, tokens int) {
	if h.tokens == nil {
		return
	}
	for tokens > 0 { // a reservation has at most a period's worth
		n := min(tokens, h.tokens.Burst())
		h.tokens.ReserveN(now, n)
		tokens -= n
	}
}
