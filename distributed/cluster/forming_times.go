package cluster

import (
	"fmt"
	"time"
)

// How long an epoch took to replace the previous one, by parts.

// Part is a part of that time; the parts follow each other in this order.
type Part int

// The parts.
const (
	Noticing   Part = iota // from the loss to the verdict: silence, or the wait for better evidence
	Waiting                // for ranks that are missing, or the pause after an epoch that did not form
	Placing                // the plan
	Mapping                // every rank maps what it owns
	Connecting             // the data plane
	Starting               // this rank's model joins the group
	parts
)

// String is the name in metrics.
func (p Part) String() string {
	return [...]string{"noticing", "waiting", "placing", "mapping", "connecting", "starting"}[p]
}

// FormingTimes are sums over the epochs that have taken the place of another.
type FormingTimes struct {
	Epochs uint64
	Parts  [parts]time.Duration // by Part
}

// Formed returns the times of the epochs that followed a loss, and of those that
// followed the orderly entry or exit of a rank.
func (l *Leader) Formed() (lost, planned FormingTimes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forming.sums[0], l.forming.sums[1]
}

// Formation says how an epoch replaced another.
type Formation struct {
	Epoch uint32
	Ranks int       // in the new epoch
	Lost  int       // rank that was lost, -1 if the epoch before ended in order
	Began time.Time // the loss, as far as it is known, or the orderly end
	Parts [parts]time.Duration
}

// formingClock measures the parts.
type formingClock struct {
	began   time.Time // when the previous epoch ended, without Noticing
	lost    int       // the rank that ended it, -1 for none
	running bool      // an epoch has ended, and the next does not run yet
	planned int       // 1 if it ended in order
	part    Part
	since   time.Time // when part began
	times   [parts]time.Duration
	sums    [2]FormingTimes
	last    time.Duration // all parts of the last time but noticing; 0 before it
}

// progress describes a forming epoch for people: how far it is, what its ranks have to
// read, and how long forming took the last time.
func (f *formingClock) progress(now time.Time, r Reads) string {
	if !f.running {
		return ""
	}
	s := fmt.Sprintf("%v for %v", f.part, now.Sub(f.since).Round(10*time.Millisecond))
	if r.Bytes > 0 {
		s += "; " + r.String()
	}
	if f.last > 0 {
		s += fmt.Sprintf("; the last time an epoch replaced another within %v", f.last.Round(time.Millisecond))
	}
	return s
}

// ended notes the end of an epoch because of a lost rank, -1 for none. The time of an
// epoch that was still forming counts for the next one.
func (f *formingClock) ended(now time.Time, noticing time.Duration, lost int, ran bool) {
	f.next(now, Waiting)
	if ran || !f.running {
		f.running, f.times, f.planned = ran, [parts]time.Duration{Noticing: noticing}, 0
		f.began, f.lost = now.Add(-noticing), lost
		if lost < 0 {
			f.planned = 1
		}
		return
	}
	f.times[Noticing] += noticing
	if lost >= 0 {
		f.planned = 0
		if f.lost < 0 {
			f.lost = lost
		}
	}
}

// next begins a part.
func (f *formingClock) next(now time.Time, p Part) {
	if f.running {
		f.times[f.part] += now.Sub(f.since)
	}
	f.part, f.since = p, now
}

// runs notes that the epoch runs, and returns how long its parts took if it replaced
// another.
func (f *formingClock) runs(now time.Time) (took [parts]time.Duration, ok bool) {
	if !f.running {
		return took, false
	}
	f.next(now, Noticing)
	f.running = false
	sum := &f.sums[f.planned]
	sum.Epochs++
	f.last = 0
	for p, t := range f.times {
		sum.Parts[p] += t
		if Part(p) != Noticing {
			f.last += t
		}
	}
	return f.times, true
}
