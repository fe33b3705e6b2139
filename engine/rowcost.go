package engine

// rowCost is what steps that only decode take by their number of rows, as a line that is
// fitted to the last of them. It decides whether a draft pays, never what an answer says.
type rowCost struct {
	n, x, xx, y, xy float64 // weighted sums over steps: 1, rows, their squares, seconds, both
	slope           float64 // seconds of a further row in steps of one row, relative to those; 0: not known
}

const (
	// costFades is the weight that the earlier steps keep with each further one.
	costFades = 0.97
	// costSpread is the least variance of the number of rows that a line is fitted to.
	costSpread = 0.02
	// costUnknown is taken for the cost of a further row, relative to a step of one row,
	// before steps of several rows have run.
	costUnknown = 0.3
	// costOutlier is how many times the expected time a step may count with. More is the
	// work of something else.
	costOutlier = 3
)

// learn records a step that only decoded.
func (c *rowCost) learn(rows int, seconds float64) {
	if rows == 0 || seconds <= 0 {
		return
	}
	if c.n > 4 {
		first, row := c.line()
		seconds = min(seconds, costOutlier*(first+float64(rows-1)*row))
	}
	x := float64(rows)
	c.n, c.x, c.xx, c.y, c.xy = c.n*costFades+1, c.x*costFades+x, c.xx*costFades+x*x, c.y*costFades+seconds, c.xy*costFades+x*seconds
	spread := c.xx/c.n - c.x/c.n*c.x/c.n
	if spread < costSpread {
		return
	}
	row := max((c.xy/c.n-c.x/c.n*c.y/c.n)/spread, 0)
	if first := c.y/c.n - row*(c.x/c.n-1); first > 0 {
		c.slope = max(row/first, 0.01)
	}
}

// line returns the seconds of a step of one row, and of each further row; with nothing
// learned, in an unknown unit.
func (c *rowCost) line() (first, row float64) {
	slope := c.slope
	if slope == 0 {
		slope = costUnknown
	}
	if c.n == 0 {
		return 1, slope
	}
	first = c.y / c.n / (1 + slope*(c.x/c.n-1))
	return first, slope * first
}
