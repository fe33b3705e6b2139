// Package simulate predicts what many groups behind a proxy will do: Run is a
// discrete-event simulation in virtual time. The scheduler, the queue and the prefix
// cache of each group are the engine's own (engine.Virtual). The proxy chooses groups as
// packaging/scaling/haproxy.cfg makes HAProxy do it. The caller says how long a step
// takes. Equal configurations give equal reports.
package simulate

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"ringmaster/engine"
	"ringmaster/model"
)

// MaxGroups is the most groups of a simulation.
const MaxGroups = 10000

// StepTime returns how long a step takes that runs prompt tokens of prompts, one token each
// of decoding sequences, and so many drafts of theirs.
type StepTime func(prompt, decoding, drafts int) time.Duration

// Config describes a simulation.
type Config struct {
	Groups   int
	Seed     uint64
	Duration time.Duration // conversations begin and continue until then; requests that were asked are still answered
	Warmup   time.Duration // requests before are not in the report

	Workload Workload
	Proxy    Proxy
	Client   Client
	Losses   Losses

	Model  model.Info     // only ContextLength, MaxTokens and Rewind are used
	Memory model.Sized    // of the sequences of a group; nil: not limited
	Engine engine.Options // of each group
	Drafts float64        // chance of the next token of an answer to be guessed; 0: no drafts
	Step   StepTime

	// Context ends the simulation early, with its cause; nil: nothing does.
	Context context.Context
	// Trace, if set, is called with each request that has ended.
	Trace func(Request)
}

// Client says how a client reacts to a refusal.
type Client struct {
	Retries    int           // how often it asks again
	RetryAfter time.Duration // after how long
}

// Losses are groups that disappear, with all that runs on them and their prefix caches,
// and come back empty.
type Losses struct {
	Every   time.Duration // mean time until a group is lost; 0: never
	Recover time.Duration // until it serves again
	// Detect is how long the proxy takes to notice. It then sends requests that the group
	// has not begun to answer to another one; the other streams end.
	Detect time.Duration
}

// check returns what is wrong with a configuration.
func (c *Config) check() error {
	switch {
	case c.Groups < 1 || c.Groups > MaxGroups:
		return fmt.Errorf("%d groups, expected 1 to %d", c.Groups, MaxGroups)
	case c.Duration <= 0 || c.Warmup < 0 || c.Warmup >= c.Duration:
		return fmt.Errorf("a duration of %v with a warm-up of %v; the duration must be positive and longer", c.Duration, c.Warmup)
	case !(c.Drafts >= 0 && c.Drafts <= 1):
		return fmt.Errorf("a share of %v drafts that are right, expected 0 to 1", c.Drafts)
	case c.Step == nil:
		return errors.New("no times of steps")
	case c.Client.Retries < 0 || c.Client.Retries > 0 && c.Client.RetryAfter <= 0:
		return fmt.Errorf("%d retries after %v", c.Client.Retries, c.Client.RetryAfter)
	case c.Losses.Every < 0 || c.Losses.Every > 0 && (c.Losses.Recover <= 0 || c.Losses.Detect < 0 || c.Losses.Detect > c.Losses.Recover):
		return fmt.Errorf("losses every %v with recovery after %v, noticed after %v; recovery must take longer than noticing",
			c.Losses.Every, c.Losses.Recover, c.Losses.Detect)
	}
	if err := c.Workload.check(); err != nil {
		return err
	}
	if err := c.Proxy.check(); err != nil {
		return err
	}
	return c.bounded()
}

// Run simulates until every request has ended.
func Run(c Config) (*Report, error) {
	s, err := run(c)
	if err != nil {
		return nil, err
	}
	return s.report(s), nil
}

// run returns the simulation at its end.
func run(c Config) (*simulation, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &simulation{Config: c, stats: newStats(&c), losses: rand.New(rand.NewPCG(c.Seed, streamLosses))}
	for i := range c.Groups {
		g := &group{index: i}
		if err := s.restart(g); err != nil {
			return nil, err
		}
		s.groups = append(s.groups, g)
		if c.Losses.Every > 0 {
			s.after(s.untilLoss(), func() { s.lose(g) })
		}
	}
	s.proxy = newProxy(c.Proxy, s.groups)
	s.arrivals = newArrivals(c.Workload, c.Seed)
	s.nextArrival()
	for len(s.events) > 0 && s.err == nil && (s.now < c.Duration || s.open > 0) {
		e := heap.Pop(&s.events).(*event)
		s.now = e.at
		s.load.events++
		if s.err = s.interrupted(c.Context); s.err == nil {
			e.run()
		}
	}
	return s, s.err
}

// simulation is the state of a run.
type simulation struct {
	Config
	*stats
	now    time.Duration // since the start
	events events
	last   uint64 // number of the last event

	groups   []*group
	proxy    *proxy
	arrivals *arrivals
	losses   *rand.Rand
	open     int // requests that have not ended
	load     load
	err      error
}

// event is something that happens. Among those at the same time the first one planned
// comes first.
type event struct {
	at     time.Duration
	number uint64
	run    func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return x
}

// after plans an event.
func (s *simulation) after(d time.Duration, run func()) {
	s.last++
	at := s.now + min(max(d, 0), math.MaxInt64-s.now)
	heap.Push(&s.events, &event{at: at, number: s.last, run: run})
}

// clock returns the current time for the schedulers.
func (s *simulation) clock() time.Time { return time.Unix(0, int64(s.now)) }

// nextArrival plans the next burst of conversations.
func (s *simulation) nextArrival() {
	wait, n := s.arrivals.next()
	if s.now+wait >= s.Duration {
		return
	}
	s.after(wait, func() {
		for range n {
			s.load.conversations++
			if s.ask(s.arrivals.conversation()); s.err != nil {
				return
			}
			if s.err = s.exceeded(); s.err != nil {
				return
			}
		}
		s.nextArrival()
	})
}

// ask begins the next turn of a conversation, unless the simulation's time is over or the
// context is full.
func (s *simulation) ask(c *conversation) {
	if s.now >= s.Duration {
		s.finish(c)
		return
	}
	added, fits := c.extend(s.Model.ContextLength, mostTokens-s.load.tokens)
	s.load.tokens += added
	if s.err = s.exceeded(); s.err != nil {
		return
	}
	if !fits {
		s.finish(c)
		return
	}
	s.load.requests++
	s.open++
	r := &request{conversation: c, Request: Request{Conversation: c.number, Turn: c.turn, Asked: s.now,
		Prompt: len(c.prompt), Answer: len(c.answer)}}
	s.began(r)
	s.connect(r)
}

// connect brings a request to the proxy, which accepts it, lets it wait or refuses it.
func (s *simulation) connect(r *request) {
	switch s.proxy.enter(r) {
	case entered:
		s.route(r)
	case waits:
		s.broke(proxyFull, s.now)
	case refused:
		s.broke(proxyFull, s.now)
		s.refuse(r)
	}
}

// route sends a request to a group.
func (s *simulation) route(r *request) {
	g := s.proxy.choose(r.conversation)
	switch {
	case g == nil:
		s.leaveProxy()
		s.broke(noGroup, s.now)
		s.refuse(r)
	case g.state == lost:
		s.after(g.noticed-s.now, func() { s.route(r) })
	default:
		s.submit(g, r)
	}
}

// leaveProxy frees the place of a request in the proxy for the next one that waits.
func (s *simulation) leaveProxy() {
	if next := s.proxy.leave(); next != nil {
		s.route(next)
	}
}

// refuse is the answer 429 or 503: the client asks again, or gives up.
func (s *simulation) refuse(r *request) {
	if r.tries < s.Client.Retries {
		r.tries++
		s.after(s.Client.RetryAfter, func() { s.connect(r) })
		return
	}
	s.end(r, Refused)
}

// end ends a request that has left the proxy.
func (s *simulation) end(r *request, how Outcome) {
	r.Outcome, r.Ended = how, s.now
	s.open--
	s.ended(r)
	if s.Trace != nil {
		s.Trace(r.Request)
	}
	if c := r.conversation; how == Answered && c.continues() {
		s.after(c.think(), func() { s.ask(c) })
	} else {
		s.finish(c)
	}
}

// untilLoss draws the time until a group is lost.
func (s *simulation) untilLoss() time.Duration {
	return seconds(distuv.Exponential{Rate: 1 / s.Losses.Every.Seconds(), Src: s.losses}.Rand())
}

// seconds returns x seconds.
func seconds(x float64) time.Duration { return nanoseconds(x * float64(time.Second)) }
