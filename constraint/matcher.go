package constraint

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Matcher follows one answer through a grammar. It implements engine.Constraint, and is
// not safe for concurrent use.
type Matcher struct {
	grammar *Grammar
	state   *state
	tokens  Tokens
	work    *Work
}

// Errors of a Matcher.
var (
	// ErrNotAllowed is wrapped by Accept's error.
	ErrNotAllowed = errors.New("the token is not allowed here")
	// ErrNoToken: the grammar continues, but with no token of the vocabulary.
	ErrNoToken = errors.New("no token of the vocabulary continues the answer")
	// ErrTooDeep: the answer continues only beyond maxDepth.
	ErrTooDeep = fmt.Errorf("the grammar nests too deep: the answer continues only beyond %d nested rules and repetitions", maxDepth)
	// ErrTooSlow: finding out what may come next takes too long.
	ErrTooSlow = errors.New("the grammar is too ambiguous: it takes too long to find out what may come next")
)

// Limits for the work of masks, in threads that are followed: some 0.1 us each.
const (
	maxWork      = 1 << 20 // for one mask
	lightWork    = 1 << 14 // for a mask that does not wait for its turn
	requestWork  = 1 << 22 // for all masks of a request
	workPerToken = 1 << 12 // in addition for each token
)

// Work bounds the work of the masks of one request, for all its answers together: less
// than 2 s, plus less than 2 ms for each token. It is safe for concurrent use.
type Work struct{ left atomic.Int64 }

// NewWork returns the work of a request.
func NewWork() *Work {
	w := &Work{}
	w.left.Store(requestWork)
	return w
}

// effort is the work of one mask or one token.
type effort struct {
	ctx  context.Context
	work *Work
	left int
	look int // value of left at which the context is checked again
}

// spend takes n units; the error is ErrTooSlow or the context's.
func (e *effort) spend(n int) error {
	if e.left -= n; e.left < 0 || e.work.left.Add(-int64(n)) < 0 {
		return ErrTooSlow
	}
	if e.left > e.look {
		return nil
	}
	e.look = e.left - lookEvery
	return e.ctx.Err()
}

func (m *Matcher) effort(ctx context.Context) *effort {
	return &effort{ctx: ctx, work: m.work, left: maxWork, look: maxWork}
}

// Matcher begins an answer. tokens must be those of the grammar's vocabulary; work is
// that of the request.
func (g *Grammar) Matcher(tokens Tokens, work *Work) *Matcher {
	return &Matcher{grammar: g, tokens: tokens, work: work}
}

// begin finds the first state as a part of the first mask, because it takes work.
func (m *Matcher) begin(e *effort) (err error) {
	if m.state == nil {
		m.state, err = m.grammar.cache.begin(e)
	}
	return err
}

// Mask sets bit id%64 of word id/64 for every id that may come next: tokens that continue
// the grammar with their bytes, tokens that it names, and ends if it may end. The error
// is ErrTooSlow, ErrTooDeep, ErrNoToken or the context's.
func (m *Matcher) Mask(ctx context.Context, allowed []uint64) error {
	e := m.effort(ctx)
	if err := m.begin(e); err != nil {
		return err
	}
	words, err := m.grammar.cache.maskOf(m.state, e)
	copy(allowed, words)
	return err
}

// Accept takes the next token. Its error wraps ErrNotAllowed, or is like Mask's.
func (m *Matcher) Accept(id int32) error {
	c := &m.grammar.cache
	m.work.left.Add(workPerToken)
	e := m.effort(context.Background()) // a token is short, so it needs no context
	if err := m.begin(e); err != nil {
		return err
	}
	to := m.state
	var err error
	if id >= 0 && int(id) < c.vocab.size && !m.tokens.Added(id) && len(m.tokens.Bytes(id)) > 0 {
		for _, b := range m.tokens.Bytes(id) {
			if to, err = c.step(to, b, e); err != nil {
				return err
			}
		}
	} else if to, err = c.special(to, id, e); err != nil {
		return err
	}
	if to.dead {
		return fmt.Errorf("%w: %d", ErrNotAllowed, id)
	}
	m.state = to
	return nil
}
