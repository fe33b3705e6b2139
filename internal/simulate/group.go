package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"ringmaster/engine"
	"ringmaster/engine/drafts"
)

// state is what the proxy can do with a group.
type state uint8

const (
	up   state = iota
	lost       // gone, but the proxy has not noticed
	down       // the proxy sends it nothing
)

// group is one group of ranks.
type group struct {
	index   int
	state   state
	noticed time.Duration // that it is lost
	life    int           // counts its recoveries
	sched   *engine.Virtual
	running map[uint64]*request // by the numbers of the scheduler
	busy    bool                // a step runs
	load    int                 // requests that the proxy has assigned to it

	began       time.Duration // of the step
	worked      time.Duration // of steps within the report's time
	wentDown    time.Duration
	gone        time.Duration // within the report's time
	requests    int
	kept        []int  // lengths that its prefix cache may hold
	evictedLate uint64 // tokens that its earlier schedulers have evicted
}

// restart gives a group an empty scheduler.
func (s *simulation) restart(g *group) (err error) {
	if g.sched != nil {
		g.evictedLate += g.sched.Stats().EvictedTokens
	}
	g.sched, err = engine.NewVirtual(s.Model, s.Memory, s.Engine)
	g.running, g.state, g.busy = map[uint64]*request{}, up, false
	if s.Drafts > 0 && err == nil {
		g.sched.Draft = func(id uint64, follows []int32) drafts.Guess {
			r := g.running[id]
			return s.guess(r.number, len(r.prompt)+r.sent, follows)
		}
	}
	return err
}

// guess is a draft of what follows the first tokens of a conversation. Whether a token of it
// is right depends on its place in the conversation alone.
func (c *Config) guess(conversation, from int, follows []int32) drafts.Guess {
	out := slices.Clone(follows)
	for i := range out {
		place := rand.New(rand.NewPCG(c.Seed+streamDrafts, uint64(conversation)<<32|uint64(from+i)))
		if place.Float64() >= c.Drafts {
			out[i] ^= 1
		}
	}
	return drafts.Guess{Tokens: out, Match: draftMatch}
}

// draftMatch is the match of texts that drafts are taken to be as good as, before their own
// outcomes are known.
const draftMatch = 8

// submit gives a request to a group.
func (s *simulation) submit(g *group, r *request) {
	id, err := g.sched.Submit(s.clock(), r.conversation.prompt, r.conversation.answer)
	switch {
	case errors.Is(err, engine.ErrBusy):
		s.broke(queueFull, s.now)
		s.leaveProxy()
		s.refuse(r)
	case errors.Is(err, engine.ErrTooLarge):
		s.broke(memoryFull, s.now)
		s.leaveProxy()
		s.end(r, Refused)
	case err != nil:
		s.err = fmt.Errorf("conversation %d, turn %d: %w", r.Conversation, r.Turn, err)
	default:
		stats := g.sched.Stats()
		r.Group, r.InFlight = g.index, stats.Active+stats.Queued
		g.running[id] = r
		g.load++
		g.requests++
		s.step(g)
	}
}

// step begins the next step of a group that is idle.
func (s *simulation) step(g *group) {
	for !g.busy {
		run, ok := g.sched.Plan(s.clock())
		if !ok {
			s.give(g, g.sched.Failed())
			return
		}
		if run == (engine.VirtualStep{}) { // it only frees memory
			s.give(g, g.sched.Commit(s.clock()))
			continue
		}
		g.busy, g.began = true, s.now
		for _, id := range g.sched.Started() {
			g.running[id].Started = s.now
		}
		life := g.life
		s.decoded(run)
		s.after(max(s.Step(run.Prompt, run.Decoding, run.Drafts), 1), func() {
			if g.life != life {
				return // lost meanwhile
			}
			g.busy = false
			g.worked += s.within(g.began, s.now)
			s.give(g, g.sched.Commit(s.clock()))
			s.step(g)
		})
	}
}

// give hands tokens to the requests. Requests that have ended leave the proxy after all
// tokens of the step are given, so that others get what was free at the end of it.
func (s *simulation) give(g *group, tokens []engine.VirtualToken) {
	var ended []*request
	for _, t := range tokens {
		r := g.running[t.Request]
		if t.First {
			r.First, r.Cached = s.now, t.Cached
			s.hit(r, g)
		} else if !t.Failed {
			s.gap(r, s.now-r.token)
		}
		r.token = s.now
		if !t.Failed {
			r.sent++
			s.tokens(r)
		}
		if t.Last || t.Failed {
			delete(g.running, t.Request)
			g.load--
			r.failed = t.Failed
			ended = append(ended, r)
		}
	}
	for _, r := range ended {
		s.leaveProxy()
		if r.failed {
			s.broke(memoryFull, s.now)
			s.end(r, Refused)
			continue
		}
		r.conversation.cachedOn(g)
		s.keep(g, len(r.conversation.prompt)+len(r.conversation.answer))
		s.end(r, Answered)
	}
}

// lose ends a group with all that it holds.
func (s *simulation) lose(g *group) {
	s.broke(groupLost, s.now)
	if g.busy {
		g.worked += s.within(g.began, s.now)
	}
	g.life++
	g.busy, g.state, g.noticed, g.wentDown = false, lost, s.now+s.Losses.Detect, s.now
	for _, id := range slices.Sorted(maps.Keys(g.running)) {
		r := g.running[id]
		if r.sent > 0 {
			s.leaveProxy()
			s.end(r, Broken)
			continue
		}
		s.after(s.Losses.Detect, func() { s.route(r) })
	}
	g.running, g.load = map[uint64]*request{}, 0
	s.after(s.Losses.Detect, func() { g.state = down })
	s.after(s.Losses.Recover, func() {
		g.gone += s.within(g.wentDown, s.now)
		if err := s.restart(g); err != nil {
			s.err = err
			return
		}
		s.after(s.untilLoss(), func() { s.lose(g) })
	})
}
