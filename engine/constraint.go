package engine

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"
)

// Constraint says which tokens an answer may have. An engine calls its methods one after
// the other, in other goroutines than its own: Mask before each token, while the model
// computes the logits of that token, and Accept after it. A constraint does not control
// the length of an answer: an answer may end in the middle because of its limit.
type Constraint interface {
	// Mask sets bit id%64 of word id/64 for every id that may come next. The words
	// [(vocab+63)/64] are zero before. It returns soon after ctx has ended. An error ends
	// the answer, and no other method is called after it.
	Mask(ctx context.Context, allowed []uint64) error
	// Accept takes the sampled token, which Mask allowed. An error ends the answer, and
	// no other method is called after it.
	Accept(id int32) error
}

// Forcer is a Constraint that knows tokens which likely follow because nothing else is
// allowed: drafts for speculative decoding.
type Forcer interface {
	Constraint
	// Forced is called after Mask, where that is, and returns soon after ctx has ended.
	Forced(ctx context.Context) []int32
}

// mask computes which tokens a request may have next. The zero mask has no constraint.
type mask struct {
	constraint Constraint
	ctx        context.Context // ends with the request
	stop       context.CancelFunc
	wake       func() // called after each computation

	words []uint64 // [(vocab+63)/64]
	// forced has what the constraint forces after the last token, when the mask is taken.
	forced []int32
	forces bool       // forced is wanted
	ready  chan error // of the computation; nil: taken already
	err    error      // of the one that was taken last
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

// end stops the computation.
func (m *mask) end() {
	if m.stop != nil {
		m.stop()
	}
}

// compute starts a goroutine that computes the next mask after accept.
func (m *mask) compute(accept func() error) {
	clear(m.words)
	m.forced = nil
	ready := make(chan error, 1)
	m.ready = ready
	go func() {
		defer m.wake()
		defer close(ready)
		defer func() {
			if v := recover(); v != nil { // without its text, which may quote a request
				ready <- fmt.Errorf("the constraint panicked with a value of type %T", v)
			}
		}()
		err := accept()
		if err == nil {
			err = m.constraint.Mask(m.ctx, m.words)
		}
		if f, ok := m.constraint.(Forcer); ok && m.forces && err == nil {
			m.forced = f.Forced(m.ctx)
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

// wait waits for a late mask; false: over came first.
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

// allows reports whether the mask, which must not be late, has an id.
func (m *mask) allows(id int32) bool {
	return m.words == nil || m.err == nil && m.words[id/64]>>(id%64)&1 == 1
}

// accept passes the sampled token on, and computes the next mask.
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

// masked returns row [vocab] with minus infinity for what a mask excludes: row itself if
// there is no mask, otherwise a copy in mem.
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

// excludable returns banned, or nil if a row [vocab] has nothing else left. So an answer
// that may only end now does end, however short it is.
func excludable(row []float32, banned []int32) []int32 {
	if len(banned) == 0 {
		return nil
	}
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

// token returns an id with its bytes. A control token that is part of the request's text
// has the bytes that the request gives it.
func (r *run) token(e *Engine, id int32) Token {
	if text, ok := r.req.Visible[id]; ok {
		return Token{ID: id, Bytes: []byte(text)}
	}
	return Token{ID: id, Bytes: bytes.Clone(e.vocab.Bytes(id))}
}
