package cluster

import "time"

// clock measures the time during which this process was able to run. A gap between
// two calls of now counts only up to a limit, because a process that was stopped or
// starved has not read what the other ranks sent, and must not take them for silent.
type clock struct {
	maxGap time.Duration
	last   time.Time
	sum    time.Duration
}

func newClock(tick time.Duration) *clock { return &clock{maxGap: 4 * tick, last: time.Now()} }

// gap returns the time since the last call of now. Of the clock that stops while the
// host sleeps and the one that does not, it uses the one that shows more.
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
