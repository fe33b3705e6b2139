package distributed

import (
	"context"
	"sync"
)

// contextWatch notifies a group when the context of an operation has ended. It
// registers a context once rather than for each operation, because callers use
// one context for many operations. begin is called by the goroutine that uses
// the group.
type contextWatch struct {
	// ended is called on a goroutine of its own when a registered context ends;
	// done is that context's Done channel. ended itself checks whether the
	// current operation has that context.
	ended func(done <-chan struct{}, cause error)

	watched <-chan struct{} // Done of the registered context
	mu      sync.Mutex      // guards cancel
	cancel  func() bool
}

// begin watches the context of the operation that is about to begin.
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

// stop stops watching. Any goroutine may call it.
func (w *contextWatch) stop() {
	w.mu.Lock()
	cancel := w.cancel
	w.cancel = nil
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
