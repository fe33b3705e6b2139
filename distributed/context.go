package distributed

import (
	"context"
	"sync"
)

// contextWatch tells a group that the context of an operation has ended. Callers
// use one context for many operations, so a context is registered once and not
// for each. begin is called by the goroutine that uses the group.
type contextWatch struct {
	// ended is called, by a goroutine of its own, when a context ends whose
	// Done is done. It looks for itself whether an operation with that
	// context is under way.
	ended func(done <-chan struct{}, cause error)

	watched <-chan struct{} // Done of the context that is registered
	mu      sync.Mutex      // guards cancel
	cancel  func() bool
}

// begin watches the context of an operation that begins.
func (w *contextWatch) begin(ctx context.Context) {
	done := ctx.Done()
	if done == nil || done == w.watched {
		return
	}
	cancel := context.AfterFunc(ctx, func() { w.ended(done, context.Cause(ctx)) })
	w.watched = done
	w.mu.Lock()
	old := w.cancel
	w.cancel = cancel
	w.mu.Unlock()
	if old != nil {
		old()
	}
}

// stop watches no context any more. Any goroutine may call it.
func (w *contextWatch) stop() {
	w.mu.Lock()
	cancel := w.cancel
	w.cancel = nil
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
