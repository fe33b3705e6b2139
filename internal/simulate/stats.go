package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"ringmaster/engine"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered"
	Refused  Outcome = "refused" // by 429 or 503, after the client's retries
	Broken   Outcome = "broken"  // its stream ended with its group
)

// Request is a request that has ended. Times are since the start.
type Request struct {
	Conversation, Turn, Group int
	InFlight                  int // requests on its group when it arrived there, including itself
	Prompt, Cached, Answer    int // tokens
	Asked, First, Ended       time.Duration
	Started                   time.Duration // its first step
	Outcome                   Outcome
}

// request is one that runs.
type request struct {
	Request
	*conversation
	tries  int
	token  time.Duration // when the last token came
	sent   int           // tokens
	failed bool          // for lack of memory
}

// fault is something that breaks.
type fault uint8

const (
	evicted    fault = iota // a turn found its KV cache evicted
	queueFull               // a group refused a request
	memoryFull              // a request had no memory
	proxyFull               // a request waited for a connection of the proxy
	noGroup                 // all groups were down
	groupLost
	faults
)

var faultTexts = [faults]string{
	evicted: "prefix cache: turns with an evicted KV cache", queueFull: "queue of a group full: 429", memoryFull: "no memory for a request",
	proxyFull: "connections of the proxy used up", noGroup: "no group to send to", groupLost: "group lost",
}

// Break is something that broke.
type Break struct {
	What  string  `json:"what"`
	At    float64 `json:"at_s"` // first time, since the start
	Count int     `json:"count"`
}

// Quantiles are of times in seconds; 0 without any.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Report is the result of a simulation. Everything except Breaks covers the requests that
// were first asked between the warm-up and the end, and that time.
type Report struct {
	Groups   int     `json:"groups"`
	Policy   Policy  `json:"balance"`
	Rate     float64 `json:"conversations_per_s"`
	Drafts   float64 `json:"drafts,omitempty"` // that are right
	Requests int     `json:"requests"`
	Answered int     `json:"answered"`
	Refused  int     `json:"refused"`
	Broken   int     `json:"broken"`

	// Waiting is the time until the first step of a request that was answered or broken:
	// in the proxy, for retries and in the queue of its group.
	Waiting    Quantiles `json:"waiting_s"`
	FirstToken Quantiles `json:"first_token_s"` // of those answered or broken, including retries and waits
	Between    Quantiles `json:"between_tokens_s"`

	AnswerRate float64 `json:"answer_tokens_per_s"` // of all groups
	PerStep    float64 `json:"tokens_per_step"`     // of a sequence that decodes, in all time; 1 without drafts
	PromptRate float64 `json:"prompt_tokens_per_s"` // including cached ones
	Cached     float64 `json:"cached_share"`        // of the prompts' tokens

	Utilisation float64 `json:"utilisation"` // mean share of a group's time that it computes, while it exists
	Busiest     float64 `json:"busiest"`     // the greatest
	Imbalance   float64 `json:"imbalance"`   // busiest by mean

	Later   int `json:"later_turns"` // all turns except the first
	Evicted int `json:"evicted"`     // those that found their KV cache evicted
	Moved   int `json:"moved"`       // came to another group
	Emptied int `json:"emptied"`     // came to their group after it was lost

	EvictedTokens uint64  `json:"evicted_tokens"` // in all time
	Breaks        []Break `json:"breaks"`         // in the order of their first times
}

// stats gathers a report.
type stats struct {
	r           Report
	from, until time.Duration
	waiting     []float64
	first       []float64
	between     histogram
	cached, all int
	answer      int
	followed    int // tokens of answers behind the first, in all time
	entries     int // of sequences that decode, in all time
	breaks      [faults]Break
}

func newStats(c *Config) *stats {
	return &stats{r: Report{Groups: c.Groups, Policy: c.Proxy.Policy, Rate: c.Workload.Rate, Drafts: c.Drafts}, from: c.Warmup, until: c.Duration}
}

// within returns how much of an interval is in the report's time.
func (s *stats) within(from, until time.Duration) time.Duration {
	return max(0, min(until, s.until)-max(from, s.from))
}

// measured reports whether a request is in the report.
func (s *stats) measured(r *request) bool { return r.Asked >= s.from }

func (s *stats) began(r *request) {
	if s.measured(r) {
		s.r.Requests++
	}
}

// hit records the first token of a request on a group.
func (s *stats) hit(r *request, g *group) {
	later := r.turn > 1
	miss := later && r.Cached == 0 && r.group == g && r.life == g.life
	if miss {
		s.broke(evicted, r.First)
	}
	if !s.measured(r) {
		return
	}
	s.cached += r.Cached
	s.all += r.Prompt
	s.waiting = append(s.waiting, (r.Started - r.Asked).Seconds())
	s.first = append(s.first, (r.First - r.Asked).Seconds())
	switch {
	case !later:
		return
	case r.group != g:
		s.r.Moved++
	case r.life != g.life:
		s.r.Emptied++
	case miss:
		s.r.Evicted++
	}
	s.r.Later++
}

// gap records the time between two tokens.
func (s *stats) gap(r *request, d time.Duration) {
	if s.measured(r) {
		s.between.add(d)
	}
}

// decoded records what a step runs.
func (s *stats) decoded(step engine.VirtualStep) { s.entries += step.Decoding }

// tokens records a token of an answer, at r.token.
func (s *stats) tokens(r *request) {
	if r.sent > 1 {
		s.followed++
	}
	if r.token >= s.from && r.token < s.until {
		s.answer++
	}
}

// ended records a request that has ended.
func (s *stats) ended(r *request) {
	if !s.measured(r) {
		return
	}
	switch r.Outcome {
	case Answered:
		s.r.Answered++
	case Refused:
		s.r.Refused++
	case Broken:
		s.r.Broken++
	}
}

// broke records that something broke at a time.
func (s *stats) broke(f fault, at time.Duration) {
	b := &s.breaks[f]
	if b.Count == 0 {
		b.What, b.At = faultTexts[f], at.Seconds()
	}
	b.Count++
}

// report returns what was gathered.
func (s *stats) report(sim *simulation) *Report {
	r := &s.r
	slices.Sort(s.waiting)
	r.Waiting = quantiles(s.waiting, nil)
	slices.Sort(s.first)
	r.FirstToken = quantiles(s.first, nil)
	r.Between = s.between.quantiles()
	span := (s.until - s.from).Seconds()
	r.AnswerRate, r.PromptRate = float64(s.answer)/span, float64(s.all)/span
	if s.entries > 0 {
		r.PerStep = float64(s.followed) / float64(s.entries)
	}
	if s.all > 0 {
		r.Cached = float64(s.cached) / float64(s.all)
	}
	var use []float64
	for _, g := range sim.groups {
		r.EvictedTokens += g.evictedLate + g.sched.Stats().EvictedTokens
		if g.state != up {
			g.gone += s.within(g.wentDown, s.until)
		}
		if g.busy {
			g.worked += s.within(g.began, s.until)
		}
		if there := s.until - s.from - g.gone; there > 0 {
			use = append(use, g.worked.Seconds()/there.Seconds())
		}
	}
	if len(use) > 0 {
		r.Utilisation, r.Busiest = stat.Mean(use, nil), floats.Max(use)
	}
	if r.Utilisation > 0 {
		r.Imbalance = r.Busiest / r.Utilisation
	}
	r.Breaks = []Break{}
	for _, b := range s.breaks {
		if b.Count > 0 {
			r.Breaks = append(r.Breaks, b)
		}
	}
	slices.SortStableFunc(r.Breaks, func(a, b Break) int { return cmp.Compare(a.At, b.At) })
	return r
}

// First says what broke first and what after it, "nothing" if nothing did.
func (r *Report) First() string {
	var parts []string
	for _, b := range r.Breaks {
		parts = append(parts, fmt.Sprintf("%s (%d times, first at %.0f s)", b.What, b.Count, b.At))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; then ")
}

// quantiles returns those of sorted values, with weights or nil.
func quantiles(sorted, weights []float64) (q Quantiles) {
	if len(sorted) == 0 {
		return q
	}
	at := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, sorted, weights) }
	return Quantiles{at(0.5), at(0.95), at(0.99), sorted[len(sorted)-1]}
}

// histogram counts times in classes with bounds that grow by 1%.
type histogram struct {
	counts map[int]int
	most   time.Duration
}

const classWidth = 1.01

func (h *histogram) add(d time.Duration) {
	if h.counts == nil {
		h.counts = map[int]int{}
	}
	h.counts[int(math.Floor(math.Log(float64(max(d, 1)))/math.Log(classWidth)))]++
	h.most = max(h.most, d)
}

// quantiles are exact to half the width of a class.
func (h *histogram) quantiles() Quantiles {
	var values, weights []float64
	for _, c := range slices.Sorted(maps.Keys(h.counts)) {
		values = append(values, math.Pow(classWidth, float64(c)+0.5)/1e9)
		weights = append(weights, float64(h.counts[c]))
	}
	q := quantiles(values, weights)
	q.Max = h.most.Seconds()
	return q
}
