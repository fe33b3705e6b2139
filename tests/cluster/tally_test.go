//go:build unix

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"
)

// pause is the longest time between two tokens of an answer.
type pause struct {
	took    time.Duration
	token   int // before which it was
	until   time.Time
	finding finding
	what    string // the fault meanwhile
}

// mostPauses is how many of the longest pauses are printed.
const mostPauses = 5

// tally counts what a campaign has seen.
type tally struct {
	faults, answers, tokens int
	named, checked          int // correctly named ranks; clusters that left nothing behind
	kinds                   map[string]int
	parts                   map[string]time.Duration // what the time went to
	pauses                  []pause                  // one of each answer after each fault
}

func newTally() *tally {
	return &tally{kinds: map[string]int{}, parts: map[string]time.Duration{}}
}

// count adds a fault.
func (c *tally) count(name string) {
	c.faults++
	c.kinds[name]++
}

// answered adds an answer that was right.
func (c *tally) answered(q question) { c.answers, c.tokens = c.answers+1, c.tokens+q.tokens }

// paused adds the longest pause of an answer.
func (c *tally) paused(p pause) { c.pauses = append(c.pauses, p) }

// notable reports whether a pause is longer than the fault explains: on a host that is
// not very busy recovery takes a second, and noticing silence takes the time of the
// silence more.
func (p pause) notable() bool {
	limits := map[finding]time.Duration{closed: 8 * time.Second, silent: 12 * time.Second, slow: 8 * time.Second}
	return p.took > limits[p.finding]
}

func (c *tally) clone() *tally { return sum([]*tally{c}) }

// sum adds several tallies; some may be nil.
func sum(all []*tally) *tally {
	s := newTally()
	for _, c := range all {
		if c == nil {
			continue
		}
		s.faults, s.answers, s.tokens = s.faults+c.faults, s.answers+c.answers, s.tokens+c.tokens
		s.named, s.checked = s.named+c.named, s.checked+c.checked
		for k, n := range c.kinds {
			s.kinds[k] += n
		}
		for k, d := range c.parts {
			s.parts[k] += d
		}
		s.pauses = append(s.pauses, c.pauses...)
	}
	return s
}

func (c *tally) String() string {
	var kinds, parts, pauses []string
	for _, k := range slices.Sorted(maps.Keys(c.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, c.kinds[k]))
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.parts), func(a, b string) int { return cmp.Compare(c.parts[b], c.parts[a]) }) {
		parts = append(parts, fmt.Sprintf("%s %.1f s", k, c.parts[k].Seconds()))
	}
	for f := closed; f <= slow; f++ {
		pauses = append(pauses, fmt.Sprintf("\n  pauses of answers, %v: %s", f, c.quantiles(f)))
	}
	var used syscall.Rusage
	cpu := 0.0
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) == nil { // of those that have ended
		cpu = float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
	}
	return fmt.Sprintf(`%d faults (%s), %d answers with %d tokens: 0 hangs, 0 wrong tokens, 0 lost answers, %d verdicts with the right rank and 0 with a wrong one, nothing left over of %d clusters%s
  time of all jobs: %s; %.1f s of processors by the ranks`,
		c.faults, strings.Join(kinds, ", "), c.answers, c.tokens, c.named, c.checked, strings.Join(pauses, ""), strings.Join(parts, ", "), cpu)
}

// quantiles describes the pauses of a kind, with the longest.
func (c *tally) quantiles(f finding) string {
	of := slices.DeleteFunc(slices.Clone(c.pauses), func(p pause) bool { return p.finding != f })
	if len(of) == 0 {
		return "none"
	}
	slices.SortFunc(of, func(a, b pause) int { return cmp.Compare(b.took, a.took) })
	at := func(q float64) time.Duration { return of[int((1-q)*float64(len(of)-1))].took.Round(time.Millisecond) }
	text := fmt.Sprintf("median %v, 90 %% within %v, 99 %% within %v, of %d; the longest:", at(.5), at(.9), at(.99), len(of))
	for _, p := range of[:min(mostPauses, len(of))] {
		text += fmt.Sprintf("\n    %v before token %d: %s", p.took.Round(time.Millisecond), p.token, p.what)
	}
	return text
}
