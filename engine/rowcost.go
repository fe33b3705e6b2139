package engine

// rowCost is what steps that only decode take by their number of rows, as a line. Its level
// follows the steps without drafts and its slope those with them, so that single steps that
// something else made slow change neither much. It decides whether a draft pays, never what
// an answer says.
type rowCost struct {
	first float64 // seconds of a step of one row; 0: not known
	slope float64 // seconds of a further row, relative to first
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
	if c.first == 0 {
		c.slope = costUnknown
		c.first = seconds / (1 + c.slope*more)
		return
	}
	expected := 1 + c.slope*more // relative to first
	// An error of more than a factor of two counts as that.
	off := costLearns * (min(max(seconds/(c.first*expected), 0.5), 2) - 1)
	if drafts == 0 {
		c.first *= 1 + off
		return
	}
	c.slope = min(max(c.slope+off*expected/more, slopeLeast), slopeMost)
}

// line returns the seconds of a step of one row, and of each further row; with nothing
// learned, in an unknown unit.
func (c *rowCost) line() (first, row float64) {
	if c.first == 0 {
		return 1, costUnknown
	}
	return c.first, c.slope * c.first
}
