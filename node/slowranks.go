package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"ringmaster/parallel"
	"ringmaster/replica"
)

// A plan divides the work so that the ranks take about as long as each other; the group is
// as fast as its slowest rank. One that is much slower (hot, throttled, out of memory, beside
// other programs) is named in the log.

const (
	slowEvery  = 10 * time.Second       // between two looks at the ranks
	slowFactor = 3                      // a rank that takes so many times as long as planned is slow
	leastSteps = 5                      // in the time between two looks, or they are not compared
	leastSlow  = 200 * time.Millisecond // of computing there
	slowInARow = 2                      // looks that must find a rank slow

)

// slowRanks compares the ranks' times.
type slowRanks struct {
	log   *slog.Logger
	hosts func(rank int) string // names, for people
	last  []replica.Report
	found map[int]int // looks in a row that found a rank slow
}

// WatchSlowRanks looks at the ranks until ctx ends.
func (l *Leader) WatchSlowRanks(ctx context.Context) {
	s := slowRanks{log: slog.Default(), hosts: l.Host, found: map[int]int{}}
	t := time.NewTicker(slowEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		_, members := l.Steps.Members()
		s.look(l.RecentReports(ctx, slowEvery/2), members, l.Planner.Last().Settings.Placement)
	}
}

// look compares what the members of an epoch, which have the parts of a placement, have
// computed since the last look, and logs those that are slow.
func (s *slowRanks) look(now []replica.Report, members []int, p parallel.Placement) {
	last := s.last
	s.last = now
	if len(members) < 2 || len(p) != len(members) {
		return
	}
	perStep := make([]time.Duration, len(members)) // [members]
	for i, r := range members {
		if r >= len(now) || r >= len(last) || now[r].Epoch != last[r].Epoch || now[r].Epoch == 0 || now[r].Steps < last[r].Steps+leastSteps {
			return // another epoch, or too little work to tell
		}
		perStep[i] = now[r].Total().Since(last[r].Total()).Compute / time.Duration(now[r].Steps-last[r].Steps)
	}
	for i, r := range members {
		others, planned := expectedStep(i, perStep, p)
		spent := perStep[i] * time.Duration(now[r].Steps-last[r].Steps)
		if others <= 0 || spent < leastSlow || perStep[i] <= slowFactor*planned {
			s.found[r] = 0
			continue
		}
		if s.found[r]++; s.found[r] == slowInARow {
			s.log.Warn("a rank is much slower than planned, and all others wait for it: look at its temperature, clock frequency, memory and other programs (ringmaster doctor on its host), or give it less work (--share)",
				"rank", r, "host", s.hosts(r), "step", perStep[i].Round(time.Microsecond), "planned", planned.Round(time.Microsecond), "ratio", fmt.Sprintf("%.1f", float64(perStep[i])/float64(planned)))
		}
	}
}

// expectedStep returns how long the others compute in a step, by their median, and how long
// member i is planned to: as long, or in proportion if it has more experts than they have.
func expectedStep(i int, perStep []time.Duration, p parallel.Placement) (others, planned time.Duration) {
	var times []time.Duration
	var sizes []int
	for j := range perStep {
		if j != i {
			times, sizes = append(times, perStep[j]), append(sizes, p[j].Experts.Len())
		}
	}
	slices.Sort(times)
	slices.Sort(sizes)
	others = times[len(times)/2]
	more := max(1, float64(p[i].Experts.Len())/float64(max(sizes[len(sizes)/2], 1)))
	return others, time.Duration(more * float64(others))
}
