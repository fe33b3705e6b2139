package constraint

import (
	"context"
	"errors"
)

// ErrTooMuchWork is wrapped by the error for a form that takes more work than its Budget
// has.
var ErrTooMuchWork = errors.New("it takes too much work to enforce: simplify it")

// DefaultWork is a good number of units for NewBudget. A unit is roughly one part of an
// expression, one node of a network or one comparison: up to 0.5 us and 100 bytes. The
// tools of an agent take some 50,000.
const DefaultWork = 1 << 20

// Budget bounds the cost of making one grammar. Everything that a client can multiply
// spends from it, before the work or soon after it, so that the time and the memory of a
// grammar do not depend on which of its parts are large. It is not safe for concurrent
// use. A nil Budget has no limit.
type Budget struct {
	ctx   context.Context
	left  int
	until int // value of left at which the context is checked again
	err   error
}

// lookEvery is the number of units between two checks of a budget's context.
const lookEvery = 1 << 10

// NewBudget returns a budget of so many units that ends with ctx.
func NewBudget(ctx context.Context, units int) *Budget {
	return &Budget{ctx: ctx, left: units, until: units}
}

// Spend takes n units. It returns false once none are left or the context has ended; the
// caller then stops, and Err says why.
func (b *Budget) Spend(n int) bool {
	if b == nil {
		return true
	}
	if b.err != nil {
		return false
	}
	if n > b.left {
		b.left, b.err = 0, ErrTooMuchWork
		return false
	}
	if b.left -= n; b.left <= b.until {
		b.until = b.left - lookEvery
		b.err = b.ctx.Err()
	}
	return b.err == nil
}

// Err returns ErrTooMuchWork, or the context's error, once Spend has returned false.
func (b *Budget) Err() error {
	if b == nil {
		return nil
	}
	return b.err
}

// Attempt runs do with half of what is left, so that an optional part does not take what
// the rest needs.
func (b *Budget) Attempt(do func(*Budget)) {
	if b == nil {
		do(nil)
		return
	}
	part := &Budget{ctx: b.ctx, left: b.left / 2, until: b.left / 2, err: b.err}
	given := part.left
	do(part)
	b.left -= given - part.left
	if part.err != nil && !errors.Is(part.err, ErrTooMuchWork) {
		b.err = part.err
	}
}
