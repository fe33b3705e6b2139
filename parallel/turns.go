package parallel

import (
	"errors"
	"iter"

	"ringmaster/distributed"
)

// Turns interleaves the two micro-batches of a step on one goroutine, so that one computes
// during an exchange of the other. Each runs as a coroutine that pauses before it begins
// an exchange and before it waits for one. Outside Interleave exchanges begin and are
// awaited at once.
//
// A group has one operation in progress at a time, and all ranks must begin the same ones
// in the same order. So the choice of the micro-batch that continues depends only on the
// states of both, which are the same on all ranks:
//
//  1. one that waits to begin an exchange, if none is in progress,
//  2. one that can compute,
//  3. the one that waits for its exchange.
//
// If both have the same state, the first continues. If both have the same number of
// exchanges, everything that the second computes before its exchange n, or after the last,
// comes after everything that the first computes before its exchange n. So the second may
// read what the first has left in the KV cache, one layer at a time.
type Turns struct {
	now *microBatch // the one that runs, nil outside Interleave
}

// rest is the state of a paused micro-batch.
type rest uint8

const (
	computes rest = iota // it can go on
	begins               // before it begins an exchange
	waits                // its exchange is under way
	ended                // it is not to be resumed
)

// microBatch is one of the two.
type microBatch struct {
	resume func() (rest, bool)
	stop   func()
	yield  func(rest) bool
	at     rest
	err    error
}

// errStopped ends a micro-batch because the other has failed.
var errStopped = errors.New("parallel: the other micro-batch of the step has failed")

// Interleave runs the two micro-batches of a step to their ends. After an error of one it
// ends the other, which waits for its current exchange, if any, and returns the error.
func (t *Turns) Interleave(first, second func() error) error {
	var both [2]*microBatch
	for i, run := range []func() error{first, second} {
		b := &microBatch{}
		b.resume, b.stop = iter.Pull(func(yield func(rest) bool) {
			b.yield = yield
			b.err = run()
		})
		both[i] = b
	}
	defer func() {
		for _, b := range both {
			t.now = b
			b.stop()
		}
		t.now = nil
	}()
	for {
		t.now = next(both)
		if t.now == nil {
			return nil
		}
		at, more := t.now.resume()
		if !more {
			at = ended
		}
		if t.now.at = at; t.now.err != nil {
			return t.now.err
		}
	}
}

// next returns the micro-batch that continues, nil if both have ended.
func next(both [2]*microBatch) *microBatch {
	order := []rest{begins, computes, waits}
	if both[0].at == waits || both[1].at == waits {
		order = order[1:]
	}
	for _, at := range order {
		for _, b := range both {
			if b.at == at {
				return b
			}
		}
	}
	return nil
}

// pause lets the other micro-batch continue.
func (t *Turns) pause(at rest) error {
	if b := t.now; b != nil && !b.yield(at) {
		return errStopped
	}
	return nil
}

// begin returns when an exchange may begin.
func (t *Turns) begin() error { return t.pause(begins) }

// wait waits for an exchange, and lets the other micro-batch compute meanwhile. Until end
// no other exchange begins.
func (t *Turns) wait(p distributed.Pending) error {
	stopped := t.pause(waits)
	if err := p.Wait(); err != nil {
		return err
	}
	return stopped
}

// end lets the other micro-batch begin its exchange.
func (t *Turns) end() error { return t.pause(computes) }

// Behind returns x without its first n elements, or nil for an empty x. It is the part of
// a buffer that belongs to a second micro-batch.
func Behind[T any](x []T, n int) []T {
	if len(x) == 0 {
		return nil
	}
	return x[n:]
}
