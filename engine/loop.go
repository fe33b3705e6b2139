package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"ringmaster/model"
)

// loop runs steps until the engine is closed or fails. It is the only user of
// the model.
func (e *Engine) loop() {
	defer close(e.done)
	defer e.leaveDisk()
	mem := make([]scratch, runtime.GOMAXPROCS(0))
	for {
		step, ctx, ok := e.nextStep(mem)
		if !ok {
			return
		}
		rows, err := e.forward(ctx, step)
		if !e.finishStep(ctx, step, rows, err, mem) {
			return
		}
	}
}

// forward runs a step. A panic of the model is an error like any other.
func (e *Engine) forward(ctx context.Context, step model.Step) (rows [][]float32, err error) {
	defer func() {
		if v := recover(); v != nil {
			rows, err = nil, e.panicked(v)
		}
	}()
	return e.model.Forward(ctx, step)
}

// panicked logs a panic of the model and returns it as an error. The error has the text of a
// runtime panic only, because any other may quote a request. The stack contains no strings.
func (e *Engine) panicked(v any) error {
	cause := fmt.Errorf("a value of type %T", v)
	if r, ok := v.(runtime.Error); ok {
		cause = r
	}
	e.opts.Logger.Error("the model panicked", "error", cause, "stack", string(debug.Stack()))
	return fmt.Errorf("the model panicked: %w", cause)
}

// nextStep waits for a step to run; ok is false when the engine is closed.
func (e *Engine) nextStep(mem []scratch) (step model.Step, ctx context.Context, ok bool) {
	for {
		e.comeBack(mem)
		e.draft()
		moved := e.move()
		moved = e.interlude() || moved
		e.mu.Lock()
		if e.closing {
			e.mu.Unlock()
			return model.Step{}, nil, false
		}
		e.lastProgress = e.opts.Clock()
		e.checkEpochLocked()
		e.sched.now = e.lastProgress
		e.setBudgetLocked()
		if step, ok = e.planLocked(); ok {
			e.idle = false
			ctx, e.cancel = context.WithCancel(context.Background())
			e.mu.Unlock()
			return step, ctx, true
		}
		if moved || e.moreToMoveLocked() {
			e.mu.Unlock()
			continue
		}
		e.idle = true
		left, expires := e.sched.untilExpiry()
		if save, due := e.sched.untilSave(); due && (!expires || save < left) {
			left, expires = save, true
		}
		e.mu.Unlock()
		e.sleep(left, expires)
	}
}

// sleep waits until the loop is woken; with expires, for at most d.
func (e *Engine) sleep(d time.Duration, expires bool) {
	if !expires {
		<-e.wake
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-e.wake:
	case <-t.C:
	}
}

// planLocked returns the scheduler's next step. It ends the requests that have no memory;
// mu is held.
func (e *Engine) planLocked() (model.Step, bool) {
	for {
		step, ok := e.sched.plan()
		failed := e.sched.mem.failed
		e.sched.mem.failed = nil
		for _, id := range failed {
			if r := e.runs[id]; r != nil {
				e.endForMemoryLocked(r, fmt.Errorf("the KV caches of all sequences have %d of %d bytes, and no other request can end",
					e.sched.use(), e.sched.mem.budget))
			}
		}
		if ok || len(failed) == 0 {
			return step, ok
		}
	}
}

// endForMemoryLocked ends a request that has no memory to continue; mu is held.
func (e *Engine) endForMemoryLocked(r *run, cause error) {
	e.opts.Logger.Warn("request failed for lack of memory", "request", r.id, "tokens", len(r.req.Prompt)+r.usage.Completion, "error", cause)
	delete(e.runs, r.id)
	r.unwatch()
	r.stream.end(fmt.Errorf("%w: %w", ErrNoMemory, cause))
}

// finishStep handles the outcome of a step; false ends the loop.
func (e *Engine) finishStep(ctx context.Context, step model.Step, rows [][]float32, err error, mem []scratch) bool {
	e.mu.Lock()
	ended := ctx.Err() != nil
	e.cancel() // frees the context
	e.cancel = nil
	e.mu.Unlock()

	switch {
	case err == nil:
	case errors.Is(err, model.ErrUnavailable):
		e.stepLost(step, err)
		return true
	case errors.Is(err, model.ErrNoMemory) && len(step.Entries) > 0:
		e.noMemory(step, err)
		return true
	case errors.Is(err, model.ErrStorage) && len(step.Entries) > 0:
		e.storageFailed(step, err)
		return true
	case ended && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		// Interrupted on purpose: nothing was committed, and the next step leaves out the
		// cancelled requests.
		e.mu.Lock()
		e.sched.abort()
		e.mu.Unlock()
		return true
	default:
		e.fail(step, err)
		return false
	}

	if err := e.checkRows(step, rows); err != nil {
		e.fail(step, err)
		return false
	}
	spoiled := e.spoiledParts(rows)
	verified := e.verify(rows, spoiled, mem)
	if step, err = e.kept(step); err != nil {
		e.fail(step, err)
		return false
	}
	e.model.Commit(step)
	for _, en := range step.Entries {
		if got, want := e.model.Len(en.Seq), en.Pos+len(en.Tokens); got != want {
			// An epoch may end between the step and its commit.
			if err := e.epochEnded(); err != nil {
				e.stepLost(step, err)
				return true
			}
			e.fail(step, fmt.Errorf("sequence %d has length %d after the step, not %d", en.Seq, got, want))
			return false
		}
	}
	e.advance(rows, spoiled, verified, mem)
	return true
}

// advance commits the step in the scheduler and gives its rows to the requests, or an
// error to those in spoiled. verified has the tokens that were already sampled.
func (e *Engine) advance(rows [][]float32, spoiled map[requestID]error, verified map[requestID][]outcome, mem []scratch) {
	e.mu.Lock()
	now := e.opts.Clock()
	began := e.lastProgress
	e.counts.steps++
	e.counts.stepTime = now.Sub(began)
	if e.opts.Observer != nil {
		e.opts.Observer.Step(e.counts.stepTime)
	}
	e.sched.now = now
	e.lastProgress = now
	for _, p := range e.sched.parts {
		if p.prompt {
			e.counts.prefill += uint64(p.n)
		} else {
			e.counts.decoding++
		}
		counts := &e.counts.drafts[p.task.guess.Source]
		for i := range p.drafts() {
			if counts.Run[i]++; i < p.kept-1 {
				counts.Accepted[i]++
			}
		}
	}
	parts, firstRow := e.sched.commit()
	runs := make([]*run, len(parts))
	for i, p := range parts {
		runs[i] = e.runs[p.task.id]
		if p.prompt && p.pos == p.task.cached {
			e.counts.cached += uint64(p.task.cached)
			if r := runs[i]; r != nil && !r.started && e.opts.Observer != nil {
				r.started = true
				e.opts.Observer.Started(began.Sub(r.stream.Times().Submitted))
			}
		}
		if r := runs[i]; r != nil {
			r.stream.step(began, now, p.prompt, p.last)
		}
		if p.last && spoiled[p.task.id] == nil {
			e.counts.tokens += uint64(max(len(verified[p.task.id]), 1))
		}
	}
	e.endSpoiledLocked(spoiled)
	e.mu.Unlock()

	// mu is not held, because sampling from a large vocabulary takes a while. If a
	// request is cancelled meanwhile, its token is wasted.
	var ready, late []nextRow
	for i, p := range parts {
		r := runs[i]
		if r == nil || spoiled[p.task.id] != nil {
			continue
		}
		// The slice headers are copied, since they belong to the model; the rows are cut
		// to the vocabulary, without the padding.
		own := slices.Clone(rows[firstRow[i] : firstRow[i]+p.rows])
		for j := range own {
			own[j] = own[j][:e.size]
		}
		if p.prompt && r.usage.Completion == 0 { // else it is computed again after a loss
			r.usage.Cached = p.task.cached
			if p.task.allRows {
				r.readPrompt(e, p.pos, own)
			}
		}
		if !p.last {
			if r.usage.Completion == 0 {
				r.stream.push(Event{Usage: r.usage, Progress: Progress{Done: p.pos + p.n, Total: len(r.req.Prompt)}})
			}
			continue
		}
		if out := verified[r.id]; len(out) > 0 {
			last := joined(r, out)
			e.give(r, last.id, last.ev, last.err)
			continue
		}
		row := own[len(own)-1]
		if p.drafts() > 0 {
			row = own[0]
		}
		if r.mask.late() {
			late = append(late, nextRow{r, row})
			continue
		}
		ready = append(ready, nextRow{r, row})
	}
	e.continueWith(ready, mem)
	e.leave(late, grace(now.Sub(began)), mem)
}

// nextRow is a row of logits [vocab] with a request that samples its next token from it.
type nextRow struct {
	run *run
	row []float32
}

// grace is how long a step waits for late masks. On a host with all processors busy with
// the model, masks are computed after the step, and without the wait the rows would come
// back one by one and make steps of one row.
func grace(step time.Duration) time.Duration {
	return min(max(step/4, time.Millisecond), 20*time.Millisecond)
}

// leave waits a little for the masks of some rows. Requests with masks that are still
// late leave the steps, so that no other request waits for them, and keep their rows:
// they come back with the tokens that they would have had.
func (e *Engine) leave(rows []nextRow, grace time.Duration, mem []scratch) {
	if len(rows) == 0 {
		return
	}
	over := time.NewTimer(grace)
	defer over.Stop()
	waits := true
	var ready []nextRow
	for _, l := range rows {
		if waits && !l.run.mask.wait(over.C) {
			waits = false
		}
		if l.run.mask.late() {
			l.run.row = append(l.run.row[:0], l.row...)
			e.late = append(e.late, l.run)
			continue
		}
		ready = append(ready, l)
	}
	e.continueWith(ready, mem)
}

// continueWith samples the next tokens of requests, side by side on several processors, and
// then gives them to the requests in turn. No mask may be late.
func (e *Engine) continueWith(rows []nextRow, mem []scratch) {
	results := make([]outcome, len(rows))
	sideBySide(len(rows), len(mem), func(i, worker int) {
		r := &results[i]
		r.id, r.ev, r.err = rows[i].run.advance(e, rows[i].row, &mem[worker])
	})
	for i, r := range results {
		e.give(rows[i].run, r.id, r.ev, r.err)
	}
}

// give passes a request its next token, or ends it with an error.
func (e *Engine) give(r *run, id int32, ev Event, err error) {
	e.mu.Lock()
	if err == nil && ev.Finish == FinishNone {
		e.sched.next(r.id, id)
	} else {
		e.sched.finish(r.id)
		delete(e.runs, r.id)
		r.unwatch()
	}
	e.mu.Unlock()
	// This comes last, so that a reader who has seen the end of the answer finds the
	// place free and the sequence in the prefix cache.
	switch {
	case errors.Is(err, ErrConstraint): // the client asked for it
		e.opts.Logger.Info("request ended by its constraint", "request", r.id, "tokens", r.usage.Completion, "error", err)
		r.stream.end(err)
	case err != nil:
		e.opts.Logger.Warn("request failed", "request", r.id, "tokens", r.usage.Completion, "error", err)
		r.stream.end(err)
	default:
		r.send(ev)
	}
}

// comeBack continues the requests that left for a late mask and have it now. A mask that
// is still being computed wakes the loop at its end.
func (e *Engine) comeBack(mem []scratch) {
	late := e.late
	e.late = nil
	var ready []nextRow
	for _, r := range late {
		e.mu.Lock()
		gone := e.runs[r.id] != r // it was cancelled, or the model lost it
		e.mu.Unlock()
		switch {
		case gone:
		case r.mask.late():
			e.late = append(e.late, r)
		default:
			ready = append(ready, nextRow{r, r.row})
		}
	}
	e.continueWith(ready, mem)
}

// noMemory makes room after the KV caches of a step did not fit in memory.
func (e *Engine) noMemory(step model.Step, err error) {
	var which *model.MemoryError
	var blamed model.SeqID
	if errors.As(err, &which) {
		blamed = which.Seq
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sched.forgoDrafts() { // without them the step may fit
		e.sched.abort()
		return
	}
	victim := e.sched.noMemory(blamed)
	if victim == 0 {
		e.opts.Logger.Info("prefix cache reduced for lack of memory", "entries", len(e.sched.prefixCache), "error", err)
		return
	}
	if r := e.runs[victim]; r != nil {
		e.endForMemoryLocked(r, fmt.Errorf("step of %s: %w", describe(step), err))
	}
}

// storageFailed ends the requests of a step that could not read what it needs.
func (e *Engine) storageFailed(step model.Step, err error) {
	e.opts.Logger.Error("a step could not read the model's file; its requests end", "step", describe(step), "error", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.sched.stepFailed() {
		if r := e.runs[id]; r != nil {
			delete(e.runs, id)
			r.unwatch()
			r.stream.end(fmt.Errorf("%w: %w", ErrStorage, err))
		}
	}
}

// fail ends the engine permanently.
func (e *Engine) fail(step model.Step, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = fmt.Errorf("%w: step %d (%s): %w", ErrFailed, e.counts.steps+1, describe(step), err)
	e.opts.Logger.Error("the model failed; no more requests are accepted", "error", e.failed)
	e.sched.abort()
	e.endStreamsLocked(e.failed)
}

// describe lists the sequences of a step and their positions.
func describe(s model.Step) string {
	var parts []string
	for _, en := range s.Entries {
		parts = append(parts, fmt.Sprintf("sequence %d, %d tokens at %d", en.Seq, len(en.Tokens), en.Pos))
	}
	if len(s.Drop) > 0 {
		parts = append(parts, fmt.Sprintf("%d dropped", len(s.Drop)))
	}
	return strings.Join(parts, "; ")
}
