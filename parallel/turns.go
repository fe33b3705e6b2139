package parallel

import (
	"errors"
	"iter"

	"ringmaster/distributed"
)

// Turns interleaves the two micro-batches of a step on one goroutine, so that one
// computes while an exchange of the other is under way. Each runs as a coroutine, which
// rests where an exchange would begin and where it would be waited for. Outside
// Interleave exchanges begin and are waited for at once.
//
// A group has one operation under way at a time, and all ranks must begin the same ones
// in the same order. So which micro-batch goes on depends only on where both rest, which
// is the same on all ranks:
//
//  1. one that wants to begin an exchange, if none is under way,
//  2. one that can compute,
//  3. the one whose exchange is under way: it waits.
//
// Of two in the same state the first goes on. If both have the same number of exchanges,
// all that the second computes before its exchange n, or after the last, comes after all
// that the first computes before its exchange n: the second may read what the first has
// left in the KV cache, a layer at a time.
type Turns struct {
	now *microBatch // the one that runs, nil outside Interleave
}

// rest is where a micro-batch rests.
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
// ends the other, which waits for its exchange if one is under way, and returns the error.
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

// next is the micro-batch that goes on, nil if both have ended.
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

// pause lets the other micro-batch go on.
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

// Behind is x without its first n elements, or nothing if there is no x: the part of a
// buffer that belongs to a second micro-batch.
func Behind[T any](x []T, n int) []T {
	if len(x) == 0 {
		return nil
	}
	return x[n:]
}
