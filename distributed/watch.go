package distributed

import (
	"context"
	"sync"
)

// ContextWatch tells a transport that the context of an operation has ended.
// Callers use one context for many operations, so a context is registered once
// and not each time. Begin is called by the goroutine that uses the group.
type ContextWatch struct {
	// Ended is called, by a goroutine of its own, when a context ends whose
	// Done is done. It looks for itself whether an operation with that
	// context is under way.
	Ended func(done <-chan struct{}, cause error)

	watched <-chan struct{} // Done of the context that is registered
	mu      sync.Mutex      // guards stop
	stop    func() bool
}

// Begin watches the context of an operation that begins.
func (w *ContextWatch) Begin(ctx context.Context) {
	done := ctx.Done()
	if done == nil || done == w.watched {
		return
	}
	stop := context.AfterFunc(ctx, func() { w.Ended(done, context.Cause(ctx)) })
	w.watched = done
	w.mu.Lock()
	old := w.stop
	w.stop = stop
	w.mu.Unlock()
	if old != nil {
		old()
	}
}

// Stop watches no context any more. It may be called by any goroutine.
func (w *ContextWatch) Stop() {
	w.mu.Lock()
	stop := w.stop
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}
