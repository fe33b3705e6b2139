package cluster

import "time"

// clock measures the time during which this process was able to run. While it
// was stopped or starved, what the other ranks sent has not been read, and they
// must not be taken for silent; so a gap between two calls of now counts only up
// to a limit.
type clock struct {
	maxGap time.Duration
	last   time.Time
	sum    time.Duration
}

func newClock(tick time.Duration) *clock { return &clock{maxGap: 4 * tick, last: time.Now()} }

// now returns the time that counts since the clock was made. It must be called
// every tick.
func (c *clock) now() time.Duration {
	t := time.Now()
	c.sum += min(t.Sub(c.last), c.maxGap)
	c.last = t
	return c.sum
}
