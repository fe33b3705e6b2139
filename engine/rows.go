package engine

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"ringmaster/model"
)

// checkRows checks the shape of a step's logits: one row for each wanted token, each of
// the model's vocabulary size. A model that returns another shape did not do what the
// step says, so nothing that it returned can be trusted.
func (e *Engine) checkRows(step model.Step, rows [][]float32) error {
	wanted := 0
	for _, en := range step.Entries {
		switch en.Want {
		case model.WantLast:
			wanted++
		case model.WantAll:
			wanted += len(en.Tokens)
		}
	}
	if len(rows) != wanted {
		return fmt.Errorf("%d rows of logits, expected %d", len(rows), wanted)
	}
	for _, row := range rows {
		if len(row) != e.info.Vocab {
			return fmt.Errorf("a row of %d logits, the vocabulary has %d", len(row), e.info.Vocab)
		}
	}
	return nil
}

// sideBySide calls do for each i below n, in at most so many goroutines, one of them the
// caller's; worker is the goroutine's number, from 0.
func sideBySide(n, workers int, do func(i, worker int)) {
	var taken atomic.Int32
	work := func(worker int) {
		for i := int(taken.Add(1)) - 1; i < n; i = int(taken.Add(1)) - 1 {
			do(i, worker)
		}
	}
	var others sync.WaitGroup
	for worker := 1; worker < min(n, workers); worker++ {
		others.Go(func() { work(worker) })
	}
	work(0)
	others.Wait()
}

// spoiledParts finds the parts of the step in flight with a logit that is NaN or
// infinite, marks them in the scheduler, and returns an error for the request of each.
// The other requests continue, because the rows of a step do not depend on each other.
// rows must have passed checkRows.
func (e *Engine) spoiledParts(rows [][]float32) (spoiled map[requestID]error) {
	firstBads := make([]int, len(rows))
	sideBySide(len(rows), runtime.GOMAXPROCS(0), func(i, _ int) { firstBads[i] = firstBad(rows[i][:e.size]) })
	if !slices.ContainsFunc(firstBads, func(bad int) bool { return bad >= 0 }) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	first := 0
	for _, p := range e.sched.parts {
		counts := p.rows
		if p.drafts() > 0 {
			counts = 1 // verify reaches the others
		}
		for i, row := range rows[first : first+counts] {
			bad := firstBads[first+i]
			if bad < 0 {
				continue
			}
			if spoiled == nil {
				spoiled = map[requestID]error{}
			}
			spoiled[p.task.id] = &NonFiniteError{
				Request: uint64(p.task.id), Seq: p.task.seq, Pos: p.pos + p.n - p.rows + i, Cached: p.task.cached,
				Token: int32(bad), Value: row[bad], Count: countBad(row[:e.size]), Of: e.size,
			}
			e.sched.spoil(p)
			break
		}
		first += p.rows
	}
	return spoiled
}

// endSpoiledLocked ends the requests in spoiled; the step has been committed and mu is
// held.
func (e *Engine) endSpoiledLocked(spoiled map[requestID]error) {
	for _, id := range slices.Sorted(maps.Keys(spoiled)) {
		err := spoiled[id]
		e.counts.nonFinite++
		e.opts.Logger.Error("request failed: the model's output is not finite", "error", err)
		e.sched.finish(id)
		if r := e.runs[id]; r != nil {
			delete(e.runs, id)
			r.unwatch()
			r.stream.end(err)
		}
	}
}

// NonFiniteError is an ErrNonFinite that names the first row of a request with a
// logit that is NaN or infinite.
type NonFiniteError struct {
	Request uint64      // number of the request since the engine started
	Seq     model.SeqID // its sequence
	Pos     int         // position of the token before the row's
	Cached  int         // tokens of the prompt that came from the prefix cache
	Token   int32       // id of the first such logit
	Value   float32     // NaN, +Inf or -Inf
	Count   int         // such logits in the row
	Of      int         // logits of the row
}

// Error names request, sequence, position and values, and what to do.
func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("%v: request %d, sequence %d, position %d: %d of %d logits, the first is logit %d, %v "+
		"(%d tokens of the prompt were cached). If it happens again, the weights may be damaged: check all of them (--verify-model)",
		ErrNonFinite, e.Request, e.Seq, e.Pos, e.Count, e.Of, e.Token, e.Value, e.Cached)
}

// Unwrap makes errors.Is(err, ErrNonFinite) hold.
func (e *NonFiniteError) Unwrap() error { return ErrNonFinite }

// firstBad returns the index of the first value that is NaN or infinite, -1 if there is
// none.
func firstBad(row []float32) int {
	for i, x := range row {
		// x-x is 0 for finite numbers and NaN for the others.
		if x-x != 0 {
			return i
		}
	}
	return -1
}

// countBad returns how many values are NaN or infinite.
func countBad(row []float32) (n int) {
	for _, x := range row {
		if x-x != 0 {
			n++
		}
	}
	return n
}
