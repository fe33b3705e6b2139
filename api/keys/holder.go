package keys

import "time"

// RenderBytes is how many bytes of Markdown a key may have rendered for each request that
// its limit allows. It is large because the chat page renders pieces of an answer again
// and again.
const RenderBytes = 1 << 20

// leastRender is what the rendering of a short text counts.
const leastRender = 4 << 10

// Holder is a key with its use. Its methods may be called concurrently.
type Holder struct {
	Key
	used *use
}

// newHolder returns the holder of a key that has used what used says.
func newHolder(k Key, used *use, now time.Time) *Holder {
	used.requests.set(k.Requests, now)
	used.tokens.set(k.Tokens, now)
	used.renders.set(Limit{k.Requests.N * RenderBytes, k.Requests.Per}, now)
	return &Holder{k, used}
}

// Expired reports whether the key has expired.
func (h *Holder) Expired(now time.Time) bool { return !h.Expires.IsZero() && !now.Before(h.Expires) }

// Request counts a request. If the limit does not allow it now, Request does not count it
// and returns how long to wait.
func (h *Holder) Request(now time.Time) (wait time.Duration) { return h.used.requests.take(now, 1) }

// Render counts the rendering of a text as Request counts a request.
func (h *Holder) Render(now time.Time, bytes int) (wait time.Duration) {
	return h.used.renders.take(now, max(bytes, leastRender))
}

// Wait returns how long to wait until tokens are available, 0 if some are now. A request
// may use more than are left, since the length of its answer is not known in advance; the
// key then waits until that has come back.
func (h *Holder) Wait(now time.Time) time.Duration { return h.used.tokens.wait(now) }

// Use counts tokens that were used.
func (h *Holder) Use(now time.Time, tokens int) { h.used.tokens.owe(now, tokens) }
