package keys

import "time"

// RenderBytes is how many bytes of Markdown a key may have rendered for each request that
// its limit allows: the page of an answer renders a few pieces of it again and again.
const RenderBytes = 1 << 20

// leastRender is what a rendering counts however short its text is.
const leastRender = 4 << 10

// Holder is a key with what it has used. Its methods may be called at once.
type Holder struct {
	Key
	used *use
}

// newHolder makes the holder of a key, which has used what used says.
func newHolder(k Key, used *use, now time.Time) *Holder {
	used.requests.set(k.Requests, now)
	used.tokens.set(k.Tokens, now)
	used.renders.set(Limit{k.Requests.N * RenderBytes, k.Requests.Per}, now)
	return &Holder{k, used}
}

// Expired reports whether the key's time is over.
func (h *Holder) Expired(now time.Time) bool { return !h.Expires.IsZero() && !now.Before(h.Expires) }

// Request counts a request. If the limit does not allow it now, it is not counted,
// and the result is how long to wait.
func (h *Holder) Request(now time.Time) (wait time.Duration) { return h.used.requests.take(now, 1) }

// Render counts the rendering of a text as Request counts a request.
func (h *Holder) Render(now time.Time, bytes int) (wait time.Duration) {
	return h.used.renders.take(now, max(bytes, leastRender))
}

// Wait returns how long to wait until there are tokens to use, 0 if there are now.
// A request may use more than are left, since nobody knows how long its answer will
// be; the key then waits until that has come back.
func (h *Holder) Wait(now time.Time) time.Duration { return h.used.tokens.wait(now) }

// Use counts tokens that were used.
func (h *Holder) Use(now time.Time, tokens int) { h.used.tokens.owe(now, tokens) }
