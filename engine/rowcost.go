package engine

import "math/bits"

// rowCosts are what steps that only decode take, by the number of sequences: 1, 2, up to 4, up
// to 8, and more. A draft among many sequences costs more of their step than one behind a
// single sequence: the weights are read for them anyway, but each row has experts of its own.
type rowCosts [5]rowCost

// of returns the cost of steps with so many sequences.
func (c *rowCosts) of(sequences int) *rowCost {
	return &c[min(bits.Len(uint(max(sequences-1, 0))), len(c)-1)]
}

// rowCost is what steps that only decode take by their number of rows, as a line. Its level
// follows the steps without drafts and its slope those with them, so that single steps that
// something else made slow change neither much. It decides whether a draft pays, never what
// an answer says.
type rowCost struct {
	first float64 // seconds of a step of one row; 0: not known
	slope float64 // seconds of a further row, relative to first
	plain bool    // a step without drafts has run, which the level is of
}

const (
	// costLearns is the weight of the last step.
	costLearns = 0.15
	// costUnknown is the slope before steps with drafts have run.
	costUnknown = 0.3
	// slopeLeast and slopeMost bound the slope.
	slopeLeast, slopeMost = 0.02, 1.5
)

// learn records a step that only decoded, with so many rows and drafts among them.
func (c *rowCost) learn(rows, drafts int, seconds float64) {
	if rows == 0 || seconds <= 0 {
		return
	}
	more := float64(rows - 1)
	if c.first == 0 || drafts == 0 && !c.plain {
		c.slope = costUnknown
		c.first = seconds / (1 + c.slope*more)
		c.plain = drafts == 0
		return
	}
	expected := 1 + c.slope*more // relative to first
	// An error of more than a factor of two counts as that.
	off := costLearns * (min(max(seconds/(c.first*expected), 0.5), 2) - 1)
	if drafts == 0 {
		c.first *= 1 + off
		return
	}
	// The line is anchored at the step without drafts.
	plain := float64(rows - drafts - 1)
	without := 1 + c.slope*plain
	ratio := expected / without * (1 + off)
	c.slope = slopeMost
	if by := more - ratio*plain; by > 0 {
		c.slope = min(max((ratio-1)/by, slopeLeast), slopeMost)
	}
	c.first *= without / (1 + c.slope*plain)
}

// line returns the seconds of a step of one row, and of each further row; with nothing
// learned, in an unknown unit. Before a step without drafts a row costs what no draft is worth.
func (c *rowCost) line() (first, row float64) {
	switch {
	case c.first == 0:
		return 1, costUnknown
	case !c.plain:
		return c.first, 2 * c.first
	}
	return c.first, c.slope * c.first
}
