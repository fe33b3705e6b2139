package engine

import (
	"slices"
	"time"

	"ringmaster/engine/diskcache"
	"ringmaster/engine/drafts"
	"ringmaster/model"
)

// The scheduler does continuous batching with chunked prefill. It is a state
// machine without goroutines, clock or model. Its owner adds requests, asks for
// the next step with plan, and reports the step's outcome with commit or abort.
// Equal calls give equal steps.
//
//	queued -> active (prefill) -> active (decoding) -> in the prefix cache -> dropped
//
// Tenants share places and tokens fairly (tenants.go); within a tenant, its sequences
// do (budget.go).
//
// The transcripts in testdata/scheduler show its decisions.

// requestID numbers requests in the order of their arrival, from 1.
type requestID uint64

// maxPromptRows bounds the rows of logits that one step computes for prompts with
// log-probabilities, because a row of a large vocabulary takes 512 KB.
const maxPromptRows = 64

// limits are the bounds of a scheduler; all are positive except cacheSize and rewind,
// which may be 0.
type limits struct {
	active       int  // most sequences in a step, and places that any tenant can get
	queue        int  // most requests that wait
	tokenBudget  int  // most tokens of a step
	prefillChunk int  // most prompt tokens of a step, all sequences together
	cacheSize    int  // most entries of the prefix cache
	rewind       int  // most tokens that a sequence can be rewound by
	tail, replay int  // those of model.Info
	anywhere     bool // a sequence can be forked at any length, without checkpoints
	leastShared  int  // the constant; tests use shorter prompts

	keepFor time.Duration // after which an unused entry of the prefix cache is dropped; 0: never
}

// task is a request in the scheduler.
type task struct {
	id       requestID
	prompt   []int32
	branches []int // as in a Request
	allRows  bool  // every prompt token needs its logits: no prefix-cache hit
	scope    string
	hints    hints
	awaited  bool  // as in an entry
	reserve  int   // positions that memory is reserved for
	beside   int64 // further bytes that are reserved
	tenant   string

	*sequence
	fork   *pending  // the sequence begins with it; nil if it is committed or there is none
	forked *sequence // the source of the fork; nil: it is none
	want   []int     // lengths at which the sequence should have checkpoints, ascending
	room   int       // checkpoints that memory is reserved for
	named  bool      // a step has named the sequence, so the model may hold memory for it
	pos    int       // position of todo[0]: len(tokens), less after a rewind
	cached int       // prompt tokens found in the prefix cache
	todo   []int32   // prompt tokens still to run, or the one token sampled last
	guess  guess     // what may follow the token in todo
	luck   tally     // what became of the drafts so far
	unpaid int       // steps since the last with drafts in which those there were did not pay
	decode bool      // the prefill is done
	served uint64    // the last step that ran it; the least recent goes first

	repeats   int  // how often it was queued again since its last token, because the model had lost its sequence
	cancelled bool // released when the step in flight has finished
	spoiled   bool // its KV cache may hold values that are not finite: never reused

	restore    *diskcache.Entry // the snapshot that is being restored; nothing runs meanwhile
	cold       bool             // restoring failed, so the disk is not asked again
	lookedUp   uint64           // version of the disk, plus 1, at the last lookup; the fields below are its result
	found      *diskcache.Entry
	foundReuse int
	shared     map[requestID]int // tokens of the prompt that it shares with active requests
	matches    map[model.SeqID]match
	waits      bool // for the prefill of another request, since the last plan
	waited     bool // it has waited for one, and was counted
}

// scheduler holds the state between steps. At most one step is in flight.
type scheduler struct {
	limits
	tenants
	lastID  requestID
	lastSeq model.SeqID
	steps   uint64 // committed steps that had entries

	queue       []*task   // first in, first out
	active      []*task   // in the order of admission
	prefixCache []*entry  // least recently used first
	leaving     []*entry  // evicted, and dropped as soon as they are saved
	disk        snapshots // nil: no prefix cache on disk
	drop        []model.SeqID

	// dropFirst makes the next step free memory and run nothing.
	dropFirst bool

	now   time.Time // set by the owner before it calls
	mem   memory
	pace  pace
	odds  odds
	model modelAsking
	// always makes tests run every draft that there is room for, whether it pays or not.
	always bool
	hits   Hits
	// worth replaces value in tests that compare policies; nil: it does not.
	worth func(k *entry, among []*entry) float64

	inFlight bool
	began    time.Time // of the step in flight
	parts    []part    // what it runs
}

// part is the run of tokens of one task in a step.
type part struct {
	task   *task
	pos    int // position of the first token
	n      int // tokens
	tokens []int32
	rows   int // rows of logits
	until  int // model.Entry.Until
	prompt bool
	last   bool // the next token can be sampled from the last row of those kept

	// Of n tokens, those that are committed: n, or less of a part with drafts. The owner sets
	// it before commit, and whether the draft after them is known to be wrong.
	kept    int
	refuted bool
}

// drafts returns how many of the tokens of the part are drafts.
func (p *part) drafts() int {
	if p.prompt {
		return 0
	}
	return p.n - 1
}

// newScheduler returns the scheduler of an engine on a model; opts has its defaults
// filled in.
func newScheduler(info model.Info, opts Options) *scheduler {
	return &scheduler{limits: limits{
		active: opts.MaxActive, queue: opts.QueueLength, tokenBudget: info.MaxTokens,
		prefillChunk: opts.PrefillChunk, cacheSize: opts.CacheEntries, rewind: info.Rewind, tail: info.Tail, replay: info.Replay,
		anywhere: info.Rewind >= info.ContextLength, leastShared: leastShared,
		keepFor: opts.CacheTimeout,
	}, pace: pace{target: opts.TokenLatency}}
}

// tooManyQueued reports whether requests with so many prompt tokens together may not wait
// beside those that do.
func (s *scheduler) tooManyQueued(tokens int) bool {
	for _, t := range s.queue {
		tokens += len(t.prompt)
	}
	return len(s.queue) > 0 && tokens > MaxQueuedTokens
}

// add queues a request and returns its id; hasRoom must have been true. It reserves
// memory for the prompt, for an answer of so many tokens (1 or more), and for bytes
// beside the sequence.
func (s *scheduler) add(tenant string, prompt []int32, branches []int, allRows bool, scope string, h hints, answer int, beside int64) requestID {
	s.lastID++
	s.refresh(scope, h.group)
	s.queue = append(s.queue, &task{id: s.lastID, sequence: &sequence{}, prompt: prompt, branches: branches, allRows: allRows, scope: scope, hints: h, tenant: tenant,
		reserve: positions(len(prompt), answer), beside: beside})
	s.join(tenant)
	return s.lastID
}

// positions returns how many positions a prompt and an answer take: the last token of the
// answer does not run.
func positions(prompt, answer int) int { return prompt + max(answer, 1) - 1 }

// plan returns the next step and marks it in flight; ok is false when there is
// nothing to do. The caller must call commit, abort or noMemory before the next
// plan.
func (s *scheduler) plan() (step model.Step, ok bool) {
	s.expire()
	s.admit()
	s.parts, s.mem.short = nil, map[*task]bool{}
	if !s.dropFirst {
		// A sequence that is short of memory gives its turn to others, which may be able to run.
		for short := -1; len(s.parts) == 0 && len(s.mem.short) > short; {
			short = len(s.mem.short)
			s.fillBudget()
		}
		if len(s.parts) == 0 && s.pace.probes() { // none that decodes can run
			s.pace.mixed = 0
			s.fillBudget()
		}
	}
	s.failShort()
	if len(s.parts) == 0 && len(s.drop) == 0 {
		return model.Step{}, false
	}
	s.inFlight, s.began = true, s.now
	step.Drop = slices.Clone(s.drop)
	if !s.dropFirst {
		s.planCheckpoints(&step)
		s.planForks(&step)
	}
	for _, p := range s.parts {
		p.task.named = true
		want := model.WantNone
		switch {
		case p.prompt && p.task.allRows, p.drafts() > 0:
			want = model.WantAll
		case p.last:
			want = model.WantLast
		}
		step.Entries = append(step.Entries, model.Entry{
			Seq: p.task.seq, Pos: p.pos, Tokens: p.tokens, Want: want, Until: p.until,
		})
	}
	return step, true
}

// admit moves waiting requests into free places and looks their prompts up in the prefix
// cache.
func (s *scheduler) admit() {
	for _, t := range s.queue {
		t.waits = false
	}
	for t := s.nextWaiting(); t != nil && !(len(s.mem.short) > 0 && len(s.active) > 0); t = s.nextWaiting() {
		h := s.findPrefix(t)
		if s.awaits(t, h.n) {
			if t.waits = true; !t.waited {
				t.waited = true
				s.hits.Waited++
			}
			continue
		}
		saved, reserve := s.findOnDisk(t, h.n), t.reserve
		if saved != nil {
			h, reserve = hit{saved: saved}, max(reserve, saved.Length())
		}
		if !s.canAdmit(t, h, reserve) {
			if h.from == nil || len(s.active)+len(s.drop)+len(s.leaving) > 0 {
				return
			}
			// The source of its fork holds the memory that the request needs, so it runs its
			// whole prompt, and the source can be evicted.
			if h = (hit{}); !s.canAdmit(t, h, reserve) {
				return
			}
		}
		s.queue = slices.DeleteFunc(s.queue, func(u *task) bool { return u == t })
		s.begin(t, h)
		if saved != nil {
			t.restore, t.named, t.todo = saved, true, nil
			s.mem.name(t.seq, saved.Length())
		}
		s.active = append(s.active, t)
		s.trimCache()
	}
}

// commit adds the tokens of the step in flight to their sequences and returns
// the parts of requests that were not cancelled, in the order of the entries.
// For each part with last set the caller then calls next or finish. firstRow[i]
// is the row at which parts[i] starts in the step's logits.
func (s *scheduler) commit() (parts []part, firstRow []int) {
	if len(s.parts) > 0 {
		s.steps++
	}
	s.commitForks()
	s.commitCheckpoints()
	row := 0
	prompt, decoding, draft := 0, 0, 0
	for _, p := range s.parts {
		t := p.task
		if p.prompt {
			prompt += p.n
		} else {
			decoding++
			draft += p.drafts()
			s.odds.learn(p)
		}
		if t.pos < len(t.tokens) {
			t.cuts++
		}
		t.tokens = append(t.tokens[:t.pos], p.tokens[:p.kept]...)
		t.checkpoints = upTo(t.checkpoints, t.pos)
		t.pos = len(t.tokens)
		t.peak = max(t.peak, t.pos)
		if t.pos >= t.replayed {
			t.replayed = 0
		}
		t.partial = model.Info{Tail: s.tail}.WholeAt(p.until, t.pos, t.replayed)
		if p.prompt {
			t.todo = t.todo[p.n:]
		} else {
			t.todo, t.guess = nil, guess{}
		}
		t.served = s.steps
		t.decode = t.decode || p.last
		s.charge(t.tenant, p.n)
		if !t.cancelled {
			parts, firstRow = append(parts, p), append(firstRow, row)
		}
		row += p.rows
	}
	s.pace.learn(prompt, decoding, draft, s.now.Sub(s.began))
	s.dropped()
	s.unfork(func(q *sequence) bool { return slices.Contains(s.drop, q.seq) })
	s.drop, s.dropFirst = nil, false
	s.finishStep()
	s.settle()
	return parts, firstRow
}

// abort discards the step in flight: nothing of it was committed. The next plan returns
// it again, without the requests cancelled meanwhile.
func (s *scheduler) abort() { s.finishStep() }

// finishStep clears the step in flight and releases the requests that were
// cancelled while it ran.
func (s *scheduler) finishStep() {
	s.inFlight, s.parts = false, nil
	for _, t := range slices.Clone(s.active) {
		if t.planned != nil { // not committed
			t.planned = nil
			s.mem.haveCheckpoints(t.seq, len(t.checkpoints))
		}
		if t.fork != nil {
			t.fork.inFlight = false
		}
		if t.cancelled {
			s.release(t)
		}
	}
}

// next sets the token sampled for a request; the next step runs it. It ignores an unknown
// id, as finish does.
func (s *scheduler) next(id requestID, token int32) {
	if t := s.find(id); t != nil {
		t.todo, t.guess, t.repeats = []int32{token}, guess{}, 0
	}
}

// guess sets a draft of what follows the token that a request runs next.
func (s *scheduler) guess(id requestID, g drafts.Guess) {
	if t := s.find(id); t != nil {
		t.guess = guess{Guess: g, asked: true}
	}
}

// finish ends a request and puts its sequence into the prefix cache.
func (s *scheduler) finish(id requestID) {
	if t := s.find(id); t != nil {
		s.release(t)
	}
}

// spoil is called before commit for a part of the step in flight with logits that are not
// finite. The part's sequence is dropped when the request ends, however it ends, because
// the KV cache may hold such values too. The caller then calls finish in place of next,
// unless the request was cancelled.
func (s *scheduler) spoil(p part) { p.task.spoiled = true }

// spoilSource keeps further requests from the source of a spoiled fork. The values that are
// not finite may come from the source, and as an entry it would make each request fail that
// forks it.
func (s *scheduler) spoilSource(t *task) {
	for _, a := range s.active {
		a.spoiled = a.spoiled || a.sequence == t.forked
	}
	for _, k := range slices.Clone(s.prefixCache) {
		if k.sequence == t.forked {
			s.dropEntry(k)
		}
	}
	if i := slices.IndexFunc(s.leaving, func(k *entry) bool { return k.sequence == t.forked }); i >= 0 {
		s.leave(i)
	}
}

// cancel removes a request, at once or, when a step is in flight, as soon as that
// step has finished. What was committed goes into the prefix cache.
func (s *scheduler) cancel(id requestID) {
	for i, t := range s.queue {
		if t.id == id {
			s.queue = slices.Delete(s.queue, i, i+1)
			return
		}
	}
	t := s.find(id)
	switch {
	case t == nil:
	case s.inFlight:
		t.cancelled = true
	default:
		s.release(t)
	}
}

// allCancelled reports whether every request of the step in flight has been
// cancelled.
func (s *scheduler) allCancelled() bool {
	return s.inFlight && len(s.parts) > 0 &&
		!slices.ContainsFunc(s.parts, func(p part) bool { return !p.task.cancelled })
}

// noMemory is called in place of abort when the model had no memory for the step in
// flight; blamed is the sequence it named, 0 for none. It evicts the least valuable entry
// of the prefix cache. If the cache is empty, it removes a request and returns its id as
// victim: the blamed one, otherwise the one with the most tokens in the step, the newest
// among equals.
func (s *scheduler) noMemory(blamed model.SeqID) (victim requestID) {
	var worst *part
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.task.seq == blamed:
			worst = p
		case worst != nil && worst.task.seq == blamed:
		case worst == nil, p.n > worst.n, p.n == worst.n && p.task.id > worst.task.id:
			worst = p
		}
	}
	waiting := len(s.drop) > 0 // dropping these alone may be enough
	s.finishStep()
	switch {
	case waiting:
	case len(s.leaving) > 0:
		s.leave(0)
	case len(s.prefixCache) > 0:
		s.evict(s.leastValuable(s.prefixCache, nil))
	case worst != nil && s.find(worst.task.id) != nil:
		victim = worst.task.id
		s.mem.counts.failed++
		s.remove(worst.task)
		s.drop = append(s.drop, worst.task.seq)
	}
	s.dropFirst = len(s.drop) > 0
	return victim
}

// stepFailed is called in place of abort when the requests of the step in flight cannot
// continue. It removes them, with their sequences, and returns their ids.
func (s *scheduler) stepFailed() (victims []requestID) {
	var tasks []*task
	for _, p := range s.parts {
		tasks = append(tasks, p.task)
	}
	s.finishStep()
	for _, t := range tasks {
		if s.find(t.id) == nil { // cancelled meanwhile
			continue
		}
		victims = append(victims, t.id)
		s.remove(t)
		s.drop = append(s.drop, t.seq)
	}
	s.dropFirst = len(s.drop) > 0
	return victims
}

// forget is called, while no step is in flight, when the model has lost all sequences. It
// empties the prefix cache. Requests that a step has run are queued again, before all others,
// with their tokens as the prompt; lost has the ids of those that cannot be. Requests that no
// step has run yet stay. Sequence ids are not used again.
func (s *scheduler) forget() (lost []requestID) {
	s.prefixCache, s.leaving, s.drop, s.dropFirst = nil, nil, nil, false
	var again []*task
	for _, t := range slices.Clone(s.active) {
		if t.restore != nil {
			s.restoreFailed(t.id)
			continue
		}
		if t.fork != nil {
			if t.named {
				s.drop = append(s.drop, t.seq)
			}
			s.lastSeq++
			t.sequence, t.named = &sequence{seq: s.lastSeq}, false
			continue
		}
		if t.named {
			if x := t.again(); x != nil {
				again = append(again, x)
			} else {
				lost = append(lost, t.id)
			}
			// The model may have run it since the new epoch began;
			// dropping an unknown sequence does nothing.
			s.drop = append(s.drop, t.seq)
		}
	}
	s.active = slices.DeleteFunc(s.active, func(t *task) bool { return t.named })
	s.queue = append(again, s.queue...)
	s.unfork(func(*sequence) bool { return true })
	s.lost()
	return lost
}

// mostRepeats bounds how often a request is queued again without a new token, because its own
// step may be what the model fails at.
const mostRepeats = 2

// again returns a request to queue in place of t whose prompt is all tokens so far, so that its
// last row is the one that t would have had next; nil if there is none.
func (t *task) again() *task {
	if t.cancelled || t.repeats == mostRepeats || t.allRows && !t.decode { // rows of its prompt have been given out
		return nil
	}
	return &task{id: t.id, prompt: slices.Concat(t.tokens[:t.pos], t.todo), branches: t.branches, scope: t.scope, hints: t.hints, awaited: t.awaited,
		reserve: t.reserve, beside: t.beside, tenant: t.tenant, luck: t.luck, repeats: t.repeats + 1, sequence: &sequence{}}
}

// find returns the active task of a request, nil if there is none.
func (s *scheduler) find(id requestID) *task {
	for _, t := range s.active {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (s *scheduler) remove(t *task) {
	s.active = slices.DeleteFunc(s.active, func(u *task) bool { return u == t })
}

// release removes a task and puts its sequence into the prefix cache as the most recently
// used entry, unless it has nothing to reuse, as a partial one without checkpoints that is too
// short to run tokens again. It drops a sequence whose rewind was not committed, because the
// step may have overwritten the state beyond.
func (s *scheduler) release(t *task) {
	s.remove(t)
	if t.spoiled {
		s.spoilSource(t)
	}
	lacks := t.partial > 0 && len(t.checkpoints) == 0 && (s.replay == 0 || len(t.tokens) <= s.replay)
	if len(t.tokens) == 0 || t.spoiled || t.pos < len(t.tokens) || lacks {
		if t.named {
			s.drop = append(s.drop, t.seq)
		}
		return
	}
	s.keep(t)
}
