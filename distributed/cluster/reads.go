package cluster

import (
	"fmt"
	"time"
)

// Reads is what the members of an epoch have to read of their files that they did not
// own in the epoch before, by the one that needs the most time for it. Nobody reads it in
// advance: a page is read when the first step needs it.
type Reads struct {
	Rank  int   // of the world
	Bytes int64 // 0: no rank owns anything new
	Rate  int64 // bytes per second that the rank has measured, 0 if unknown
}

// Takes is how long reading takes at most, 0 if that is not known.
func (r Reads) Takes() time.Duration {
	if r.Rate <= 0 {
		return 0
	}
	return time.Duration(min(float64(r.Bytes)/float64(r.Rate)*float64(time.Second), 1<<62))
}

// String is a sentence for people, "" if there is nothing to read.
func (r Reads) String() string {
	if r.Bytes == 0 {
		return ""
	}
	s := fmt.Sprintf("rank %d has to read up to %.1f MiB of weights that are new to it", r.Rank, float64(r.Bytes)/(1<<20))
	if r.Rate > 0 {
		s += fmt.Sprintf(", within %v at the %.0f MiB/s that it has measured", roundUp(r.Takes()), float64(r.Rate)/(1<<20))
	}
	return s
}

// roundUp rounds a time up to tenths of a second, from ten seconds on to seconds.
func roundUp(d time.Duration) time.Duration {
	unit := time.Second
	if d < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	return (d + unit - 1).Truncate(unit)
}

// Reads is that of the epoch that forms or runs; empty before its plan.
func (l *Leader) Reads() Reads {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}
