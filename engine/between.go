package engine

import (
	"context"
	"slices"
)

// interlude is a call of Between that waits for its turn.
type interlude struct {
	do   func()
	done chan struct{}
}

// Between has the goroutine that owns the model call do between two steps, and returns
// afterwards. Requests wait meanwhile, so do must be brief and its waits bounded. One
// call runs in each gap, in their order. If ctx ends before its turn comes, do does not
// run. Errors wrap ErrClosed or ErrFailed, or are ctx's.
func (e *Engine) Between(ctx context.Context, do func()) error {
	x := &interlude{do, make(chan struct{})}
	e.mu.Lock()
	if e.failed != nil || e.closing {
		defer e.mu.Unlock()
		return e.endedLocked()
	}
	e.interludes = append(e.interludes, x)
	e.mu.Unlock()
	e.wakeLoop()
	select {
	case <-x.done:
		return nil
	case <-e.done:
	case <-ctx.Done():
	}
	e.mu.Lock()
	i := slices.Index(e.interludes, x)
	if i >= 0 {
		e.interludes = slices.Delete(e.interludes, i, i+1)
	}
	err := e.endedLocked()
	e.mu.Unlock()
	switch {
	case i < 0: // it is running, or has run
		<-x.done
		return nil
	case err != nil:
		return err
	}
	return context.Cause(ctx)
}

// interlude runs the first waiting call of Between, if there is one.
func (e *Engine) interlude() (ran bool) {
	e.mu.Lock()
	var x *interlude
	if len(e.interludes) > 0 {
		x, e.interludes = e.interludes[0], e.interludes[1:]
	}
	e.mu.Unlock()
	if x == nil {
		return false
	}
	defer close(x.done)
	x.do()
	return true
}
