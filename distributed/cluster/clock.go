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

// gap returns for how long now has not been called, by the clock that stands still while
// the host sleeps or by the one that does not, whichever shows more.
func (c *clock) gap() time.Duration {
	t := time.Now()
	return max(t.Sub(c.last), t.Round(0).Sub(c.last.Round(0)))
}

// now returns the time that counts since the clock was made. It must be called
// every tick.
func (c *clock) now() time.Duration {
	t := time.Now()
	c.sum += min(t.Sub(c.last), c.maxGap)
	c.last = t
	return c.sum
}
