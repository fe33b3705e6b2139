package simulate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"ringmaster/engine"
)

// Bounds of a simulation, so that it takes at most some gigabytes of memory.
const (
	// MostAtOnce is the most conversations that have begun and not ended, of about 1 KiB
	// each.
	MostAtOnce = 1_000_000

	mostRequests = 10_000_000    // the report keeps two times for each
	mostTries    = 100_000_000   // requests with their repetitions
	mostLosses   = 10_000_000    // of groups
	mostPoints   = 1 << 22       // of all groups on the ring
	mostTokens   = 1 << 28       // of conversations and prefix caches, of 4 bytes each
	mostEvents   = 2_000_000_000 // that happen
)

// bounded refuses a configuration that is expected to take too much memory or never end.
func (c *Config) bounded() error {
	seconds := c.Duration.Seconds()
	turns := min(c.Workload.Turns, float64(c.Model.ContextLength)) // each turn has a token
	requests := c.Workload.Rate * seconds * turns
	switch losses := float64(c.Groups) * seconds / max(c.Losses.Every+c.Losses.Recover, 1).Seconds(); {
	case requests > mostRequests:
		return fmt.Errorf("%.4g conversations a second for %v, with %.4g requests each, are %.3g requests, at most %d can be simulated; simulate fewer groups, a lower rate or a shorter time",
			c.Workload.Rate, c.Duration, turns, requests, mostRequests)
	case requests*float64(1+c.Client.Retries) > mostTries:
		return fmt.Errorf("%.3g requests that may be repeated %d times each are %.3g, at most %d can be simulated; allow fewer repetitions",
			requests, c.Client.Retries, requests*float64(1+c.Client.Retries), mostTries)
	case c.Workload.Burst > MostAtOnce:
		return fmt.Errorf("bursts of %.4g conversations, at most %d at once can be simulated; simulate smaller bursts", c.Workload.Burst, MostAtOnce)
	case int64(c.Groups)*int64(c.Proxy.Points) > mostPoints:
		return fmt.Errorf("%d groups with %d points each have %d points on the ring, at most %d can be simulated; give each group fewer", c.Groups, c.Proxy.Points, int64(c.Groups)*int64(c.Proxy.Points), mostPoints)
	case c.Losses.Every > 0 && losses > mostLosses:
		return fmt.Errorf("%d groups lost every %v for %v are %.3g losses, at most %d can be simulated; let groups be lost less often", c.Groups, c.Losses.Every, c.Duration, losses, mostLosses)
	}
	return nil
}

// load is what a simulation holds in memory while it runs.
type load struct {
	conversations int // begun and not ended
	tokens        int // of these conversations, and at most of the prefix caches
	requests      int // so far
	events        int // so far
}

// exceeded returns an error if the simulation has outgrown its bounds, which happens if
// requests take much longer than the think times of clients.
func (s *simulation) exceeded() error {
	l := &s.load
	what, n, most := "conversations at once", l.conversations, MostAtOnce
	switch {
	case l.tokens > mostTokens:
		what, n, most = "tokens of conversations at once", l.tokens, mostTokens
	case l.requests > 2*mostRequests:
		what, n, most = "requests", l.requests, 2*mostRequests
	case l.events > mostEvents:
		what, n, most = "events", l.events, mostEvents
	}
	if n > most {
		return fmt.Errorf("after %v of %v there are %d %s, at most %d can be simulated; simulate fewer or shorter conversations", s.now.Round(time.Millisecond), s.Duration, n, what, most)
	}
	return nil
}

// interrupted returns exceeded, or why a simulation ends early: it checks ctx, if not
// nil, now and then.
func (s *simulation) interrupted(ctx context.Context) error {
	if ctx != nil && s.load.events%1024 == 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.exceeded()
}

// keep counts what the prefix cache of a group may hold of a request that it answered:
// its newest entries, at their full lengths.
func (s *simulation) keep(g *group, length int) {
	most := 0
	d := engine.Defaults()
	for _, n := range []int{cmp.Or(s.Engine.CacheEntries, d.CacheEntries), cmp.Or(s.Engine.MaxActive, d.MaxActive)} {
		most += max(n, 0)
	}
	g.kept = append(g.kept, length)
	s.load.tokens += length
	if len(g.kept) > most {
		s.load.tokens -= g.kept[0]
		g.kept = g.kept[1:]
	}
}

// finish forgets a conversation that has ended.
func (s *simulation) finish(c *conversation) {
	s.load.conversations--
	s.load.tokens -= len(c.history)
}

// longest is the longest time, far from overflowing sums.
const longest = time.Duration(1 << 61)

// nanoseconds returns x nanoseconds, at most longest.
func nanoseconds(x float64) time.Duration { return time.Duration(min(x, float64(longest))) }
