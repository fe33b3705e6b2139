package engine

import (
	"fmt"
	"time"

	"ringmaster/engine/drafts"
	"ringmaster/model"
)

// Virtual decides what each step runs exactly as an Engine does, with the same scheduler,
// but has no model, goroutine or clock: its user says what the answers are and when each
// step begins and ends. Package simulate runs thousands of them. It is not safe for
// concurrent use.
type Virtual struct {
	// Draft, if set, guesses the tokens of a request's answer behind the one that its next
	// step runs. follows are the right ones, as many as a draft may have.
	Draft func(request uint64, follows []int32) drafts.Guess

	sched   *scheduler
	context int
	answers map[requestID]*virtualAnswer
	failed  []requestID // for lack of memory, not reported yet
}

// virtualAnswer is the answer to a request.
type virtualAnswer struct {
	tokens []int32
	sent   int
}

// NewVirtual returns the scheduler of an Engine with the same options, on a model with
// this Info. memory gives the sizes of its sequences, nil if nothing is counted. Options
// that do not concern scheduling are ignored. Errors wrap ErrInvalid.
func NewVirtual(info model.Info, memory model.Sized, opts Options) (*Virtual, error) {
	opts, err := opts.withDefaults(info)
	if err != nil {
		return nil, err
	}
	v := &Virtual{sched: newScheduler(info, opts), context: info.ContextLength, answers: map[requestID]*virtualAnswer{}}
	if memory != nil {
		v.sched.mem.size, v.sched.mem.budget, v.sched.mem.checkpoint = memory.SequenceBytes, memory.SequenceBudget(), memory.CheckpointBytes()
	}
	return v, nil
}

// Submit queues a prompt that will get these tokens as its answer, at least one, and
// returns the number of the request, from 1. It reserves memory for the answer as for a
// request with that MaxTokens. Errors wrap ErrInvalid, ErrTooLong, ErrTooLarge or
// ErrBusy. The slices must not change while the request runs.
func (v *Virtual) Submit(now time.Time, prompt, answer []int32) (uint64, error) {
	switch {
	case len(prompt) == 0 || len(answer) == 0:
		return 0, fmt.Errorf("%w: a prompt of %d and an answer of %d tokens, both must have one", ErrInvalid, len(prompt), len(answer))
	case len(prompt)+len(answer) > v.context:
		return 0, fmt.Errorf("%w: %d and %d of the answer, the context holds %d", ErrTooLong, len(prompt), len(answer), v.context)
	case !v.sched.canHold(positions(len(prompt), len(answer)), 0):
		return 0, fmt.Errorf("%w: a sequence of %d tokens", ErrTooLarge, positions(len(prompt), len(answer)))
	case v.sched.roomFor("", 1) != hasRoom:
		return 0, fmt.Errorf("%w: %d requests run and %d wait", ErrBusy, len(v.sched.active), len(v.sched.queue))
	case v.sched.tooManyQueued(len(prompt)):
		return 0, fmt.Errorf("%w: the prompts that wait would have more than %d tokens", ErrBusy, MaxQueuedTokens)
	}
	v.sched.now = now
	id := v.sched.add("", prompt, nil, false, "", hints{}, len(answer), 0)
	v.answers[id] = &virtualAnswer{tokens: answer}
	return uint64(id), nil
}

// VirtualStep is what a step runs.
type VirtualStep struct {
	Prompt   int // tokens of prompts
	Decoding int // sequences that decode, one token each
	Drafts   int // guesses of further tokens of theirs
}

// Plan begins the next step; the caller must call Commit before the next Plan. ok is
// false when there is nothing to do until a request comes. A step that only frees memory
// runs nothing.
func (v *Virtual) Plan(now time.Time) (step VirtualStep, ok bool) {
	v.sched.now = now
	v.draft()
	for {
		_, ok = v.sched.plan()
		failed := v.sched.mem.failed
		v.sched.mem.failed = nil
		v.failed = append(v.failed, failed...)
		if ok || len(failed) == 0 {
			break
		}
	}
	for _, p := range v.sched.parts {
		if p.prompt {
			step.Prompt += p.n
		} else {
			step.Decoding++
			step.Drafts += p.drafts()
		}
	}
	return step, ok
}

// draft asks for drafts of the sequences that decode in the next step.
func (v *Virtual) draft() {
	if v.Draft == nil {
		return
	}
	for _, t := range v.sched.active {
		if !t.decode || len(t.todo) == 0 || t.guess.asked {
			continue
		}
		var g drafts.Guess
		a := v.answers[t.id]
		if most := min(drafts.Most, len(a.tokens)-a.sent-1); most > 0 {
			g = v.Draft(uint64(t.id), a.tokens[a.sent:a.sent+most])
		}
		v.sched.guess(t.id, g)
	}
}

// Started returns the requests that run their first step in the one that Plan has begun.
func (v *Virtual) Started() (requests []uint64) {
	for _, p := range v.sched.parts {
		if p.prompt && p.pos == p.task.cached {
			requests = append(requests, uint64(p.task.id))
		}
	}
	return requests
}

// VirtualToken is a token of an answer, or the end of a request without one.
type VirtualToken struct {
	Request uint64
	Cached  int  // tokens of the prompt that were a prefix-cache hit
	First   bool // of the answer
	Last    bool
	Failed  bool // in place of a token: the request ended for lack of memory
}

// Commit ends the current step and returns its tokens, in the order of the step's
// entries, and the requests that ended for lack of memory.
func (v *Virtual) Commit(now time.Time) []VirtualToken {
	v.sched.now = now
	var out []VirtualToken
	for i := range v.sched.parts {
		v.keep(&v.sched.parts[i])
	}
	parts, _ := v.sched.commit()
	for _, p := range parts {
		if !p.last {
			continue
		}
		id := p.task.id
		a := v.answers[id]
		n := 1
		if p.drafts() > 0 {
			n = p.kept
		}
		for range n {
			a.sent++
			out = append(out, VirtualToken{Request: uint64(id), Cached: p.task.cached, First: a.sent == 1, Last: a.sent == len(a.tokens)})
		}
		if a.sent == len(a.tokens) {
			v.sched.finish(id)
			delete(v.answers, id)
		} else {
			v.sched.next(id, a.tokens[a.sent-1])
		}
	}
	return append(out, v.Failed()...)
}

// keep sets what a part with drafts keeps.
func (v *Virtual) keep(p *part) {
	if p.drafts() == 0 {
		return
	}
	a := v.answers[p.task.id]
	for p.kept = 1; p.kept < p.n && a.sent+p.kept < len(a.tokens); p.kept++ {
		if p.tokens[p.kept] != a.tokens[a.sent+p.kept-1] {
			p.refuted = true
			return
		}
	}
}

// Failed returns the requests that ended for lack of memory and that no call has returned
// yet. It is needed only when Plan had no step.
func (v *Virtual) Failed() (out []VirtualToken) {
	for _, id := range v.failed {
		out = append(out, VirtualToken{Request: uint64(id), Failed: true})
		delete(v.answers, id)
	}
	v.failed = nil
	return out
}

// VirtualStats is the state of a Virtual.
type VirtualStats struct {
	Active, Queued int // requests
	CacheEntries   int // entries of the prefix cache
	EvictedTokens  uint64
}

// Stats returns the state.
func (v *Virtual) Stats() VirtualStats {
	return VirtualStats{Active: len(v.sched.active), Queued: len(v.sched.queue), CacheEntries: len(v.sched.prefixCache),
		EvictedTokens: v.sched.mem.counts.evictedTokens}
}
