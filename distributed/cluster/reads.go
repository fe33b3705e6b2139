package cluster

import (
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/internal/units"
)

// Reads is the part of their files that the members of an epoch have to read because they
// did not own it in the previous epoch. It describes the rank that needs the most time.
// No rank reads in advance: a page is read when the first step needs it.
type Reads struct {
	Rank  int    // of the world
	Bytes int64  // 0: no rank owns anything new
	Rate  int64  // bytes per second that the rank has measured, 0 if unknown
	Host  string // name of the rank's host, empty if unknown
}

// Takes returns how long reading takes at most, 0 if that is unknown.
func (r Reads) Takes() time.Duration {
	if r.Rate <= 0 {
		return 0
	}
	return time.Duration(min(float64(r.Bytes)/float64(r.Rate)*float64(time.Second), 1<<62))
}

// String returns a sentence for people, "" if nothing has to be read.
func (r Reads) String() string {
	if r.Bytes == 0 {
		return ""
	}
	s := fmt.Sprintf("%s has to read up to %s of weights that are new to it", distributed.RankName(r.Rank, r.Host), units.Bytes(r.Bytes))
	if r.Rate > 0 {
		s += fmt.Sprintf(", within %v at the %s/s that it measured", roundUp(r.Takes()), units.Bytes(r.Rate))
	}
	return s
}

// roundUp rounds a time up: to tenths of a second below ten seconds, to seconds above.
func roundUp(d time.Duration) time.Duration {
	unit := time.Second
	if d < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	return (d + unit - 1).Truncate(unit)
}

// Reads returns what the ranks of the forming or running epoch have to read; it is empty
// before the plan.
func (l *Leader) Reads() Reads {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}
