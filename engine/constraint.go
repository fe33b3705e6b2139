package engine

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"
)

// Constraint says which tokens an answer may have. An engine calls its methods one
// after the other, in other goroutines than its own: Mask before each token, while the
// model computes the logits of that token, and Accept after it. They have no say in how
// long an answer is: it may end in the middle because of its limit.
type Constraint interface {
	// Mask sets bit id%64 of word id/64 for every id that may come next. The
	// words [(vocab+63)/64] are zero before. It returns soon after ctx has ended. After
	// an error no other method is called, and the answer ends with it.
	Mask(ctx context.Context, allowed []uint64) error
	// Accept takes the token that came, which Mask allowed. After an error no
	// other method is called, and the answer ends with it.
	Accept(id int32) error
}

// mask computes which tokens a request may have next. A zero mask has no
// constraint.
type mask struct {
	constraint Constraint
	ctx        context.Context // ends with the request
	stop       context.CancelFunc
	wake       func() // is called after each computation

	words []uint64   // [(vocab+63)/64]
	ready chan error // of the computation; nil: it has been taken
	err   error      // of the one that was taken
}

// begin computes the mask of the first token.
func (m *mask) begin(vocab int, wake func()) {
	if m.constraint == nil {
		return
	}
	m.wake, m.words = wake, make([]uint64, (vocab+63)/64)
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.compute(func() error { return nil })
}

// end stops computing.
func (m *mask) end() {
	if m.stop != nil {
		m.stop()
	}
}

// compute computes the next mask after accept, in a goroutine of its own.
func (m *mask) compute(accept func() error) {
	clear(m.words)
	ready := make(chan error, 1)
	m.ready = ready
	go func() {
		defer m.wake()
		defer close(ready)
		defer func() {
			if v := recover(); v != nil { // not with its text, which may quote a request
				ready <- fmt.Errorf("engine: the constraint panicked with a value of type %T", v)
			}
		}()
		err := accept()
		if err == nil {
			err = m.constraint.Mask(m.ctx, m.words)
		}
		if err != nil {
			ready <- fmt.Errorf("%w: %w", ErrConstraint, err)
		}
	}()
}

// late reports whether the mask is still being computed.
func (m *mask) late() bool {
	if m.ready == nil {
		return false
	}
	select {
	case m.err = <-m.ready:
		m.ready = nil
		return false
	default:
		return true
	}
}

// wait waits for a mask that is late; false: over came first.
func (m *mask) wait(over <-chan time.Time) bool {
	if m.ready == nil {
		return true
	}
	select {
	case m.err = <-m.ready:
		m.ready = nil
		return true
	case <-over:
		return false
	}
}

// take returns the mask, which must not be late; nil without a constraint.
func (m *mask) take() ([]uint64, error) { return m.words, m.err }

// accept takes the token that came, and computes the next mask.
func (m *mask) accept(id int32) {
	if m.constraint == nil {
		return
	}
	m.compute(func() error {
		if err := m.constraint.Accept(id); err != nil {
			return fmt.Errorf("token %d: %w", id, err)
		}
		return nil
	})
}

// masked is row [vocab] with minus infinity for what a mask excludes: row itself
// where there is no mask, else a copy in mem.
func masked(row []float32, words []uint64, mem *scratch) []float32 {
	if words == nil {
		return row
	}
	mem.row = append(mem.row[:0], row...)
	none := float32(math.Inf(-1))
	for i, word := range words {
		if word == math.MaxUint64 {
			continue
		}
		for id := 64 * i; id < min(64*i+64, len(mem.row)); id++ {
			if word>>(id%64)&1 == 0 {
				mem.row[id] = none
			}
		}
	}
	return mem.row
}

// excludable is banned, or nil if a row [vocab] has nothing else left: an answer that
// may only end now ends, however short it is.
func excludable(row []float32, banned []int32) []int32 {
	left := 0
	for _, x := range row {
		if !math.IsInf(float64(x), -1) {
			left++
		}
	}
	for _, id := range banned {
		if !math.IsInf(float64(row[id]), -1) {
			left--
		}
	}
	if left <= 0 {
		return nil
	}
	return banned
}

// token is an id with its bytes: those of the request for a control token that is a
// part of its text.
func (r *run) token(e *Engine, id int32) Token {
	if text, ok := r.req.Visible[id]; ok {
		return Token{ID: id, Bytes: []byte(text)}
	}
	return Token{ID: id, Bytes: bytes.Clone(e.vocab.Bytes(id))}
}
