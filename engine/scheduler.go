package engine

import (
	"cmp"
	"slices"

	"ringmaster/model"
)

// The scheduler is a state machine: no goroutine, no clock, no model. Its
// owner tells it of requests, asks for the next step with plan, and reports
// what became of it with commit or abort. Equal calls give equal steps.
//
//	queued -> active (prompt) -> active (decoding) -> kept as a session -> dropped
//
// testdata/scheduler tells its life in transcripts.

// requestID numbers requests in the order of their arrival, from 1.
type requestID uint64

// maxPromptRows bounds the logits rows that one step computes for prompts with
// log-probabilities: a row of a large vocabulary is half a megabyte.
const maxPromptRows = 64

// limits are the bounds of a scheduler; all are positive but keep and rewind,
// which may be 0.
type limits struct {
	active       int // sequences that advance together
	queue        int // requests that wait
	stepTokens   int // tokens of a step
	prefillChunk int // prompt tokens of a step, all sequences together
	keep         int // sessions kept after their request
	rewind       int // how many tokens a session can take back
}

// task is a request in the scheduler.
type task struct {
	id      requestID
	prompt  []int32
	allRows bool // every prompt token needs its logits: no reuse

	seq    model.SeqID
	named  bool    // a step had the sequence: the model may hold memory for it
	tokens []int32 // committed tokens of the sequence
	peak   int     // the most tokens that were ever committed to it
	pos    int     // where todo goes: len(tokens), less when a session is rewound
	cached int     // prompt tokens found in a session
	todo   []int32 // prompt tokens still to run, or the one token drawn last
	decode bool    // the prompt is done
	served uint64  // the last step that had it; the least recent goes first

	cancelled bool // goes as soon as no step runs it
}

// session is a sequence whose request has ended.
type session struct {
	seq    model.SeqID
	tokens []int32
	peak   int // as of a task
}

// scheduler holds the state between steps. One step at most is in flight.
type scheduler struct {
	limits
	lastID  requestID
	lastSeq model.SeqID
	steps   uint64 // committed steps that had entries

	queue  []*task    // first come first
	active []*task    // in the order of admission
	kept   []*session // the longest unused first
	drop   []model.SeqID

	// dropFirst makes the next step free memory and do nothing else.
	dropFirst bool

	inFlight bool
	parts    []part // what the step in flight runs, beside all of drop
}

// part is the share of a task in a step.
type part struct {
	task   *task
	pos    int // position of the first token
	n      int // tokens
	rows   int // logits rows
	prompt bool
	last   bool // the next token can be drawn from the last row
}

// add queues a request and gives its id; ok is false when the queue is full.
func (s *scheduler) add(prompt []int32, allRows bool) (id requestID, ok bool) {
	if s.full() {
		return 0, false
	}
	s.lastID++
	s.queue = append(s.queue, &task{id: s.lastID, prompt: prompt, allRows: allRows})
	return s.lastID, true
}

// full reports whether add would refuse. Requests that the next step admits do
// not count as waiting.
func (s *scheduler) full() bool {
	free := max(0, s.limits.active-len(s.active))
	return len(s.queue) >= s.limits.queue+free
}

// plan gives the next step and holds it in flight; ok is false when there is
// nothing to do. The caller must call commit or abort before the next plan.
func (s *scheduler) plan() (step model.Step, ok bool) {
	s.admit()
	s.parts = nil
	if !s.dropFirst {
		s.share()
	}
	if len(s.parts) == 0 && len(s.drop) == 0 {
		return model.Step{}, false
	}
	s.inFlight = true
	step.Drop = slices.Clone(s.drop)
	for _, p := range s.parts {
		p.task.named = true
		want := model.WantNone
		switch {
		case p.prompt && p.task.allRows:
			want = model.WantAll
		case p.last:
			want = model.WantLast
		}
		step.Entries = append(step.Entries, model.Entry{
			Seq: p.task.seq, Pos: p.pos, Tokens: p.task.todo[:p.n:p.n], Want: want,
		})
	}
	return step, true
}

// admit moves waiting requests into free places and finds sessions for them.
func (s *scheduler) admit() {
	for len(s.queue) > 0 && len(s.active) < s.limits.active {
		t := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		if i, n := s.match(t); i >= 0 {
			k := s.kept[i]
			t.seq, t.named, t.tokens, t.peak, t.pos, t.cached = k.seq, true, k.tokens, k.peak, n, n
			s.kept = slices.Delete(s.kept, i, i+1)
		} else {
			s.lastSeq++
			t.seq = s.lastSeq
		}
		t.todo = t.prompt[t.pos:]
		s.active = append(s.active, t)
	}
}

// match finds the kept session that spares t the most tokens: one that t's
// prompt extends, or leaves no further behind its greatest length than the
// model can rewind. One token of the prompt is always left to run, for its logits.
func (s *scheduler) match(t *task) (index, reuse int) {
	index = -1
	if t.allRows {
		return index, 0
	}
	for i, k := range s.kept {
		n := min(commonPrefix(k.tokens, t.prompt), len(t.prompt)-1)
		if n > reuse && k.peak-n <= s.rewind {
			index, reuse = i, n
		}
	}
	return index, reuse
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// share divides the tokens of a step. Each decoding sequence runs its one
// token; the prompts share what is left, at most prefillChunk, in equal parts,
// and what a short one does not need goes to the longer ones. When not every
// sequence can have a token, those that waited longest go first.
func (s *scheduler) share() {
	var order []*task
	for _, t := range s.active {
		if !t.cancelled && len(t.todo) > 0 {
			order = append(order, t)
		}
	}
	slices.SortStableFunc(order, func(a, b *task) int { return cmp.Compare(a.served, b.served) })
	order = order[:min(len(order), s.stepTokens)]

	var prompts []*task
	for _, t := range order {
		if !t.decode {
			prompts = append(prompts, t)
		}
	}
	room := min(s.prefillChunk, s.stepTokens-(len(order)-len(prompts)))
	prompts = prompts[:min(len(prompts), room)]
	// The shortest first: then an equal part of what is left for each is
	// the fair share.
	slices.SortStableFunc(prompts, func(a, b *task) int { return cmp.Compare(a.demand(), b.demand()) })
	chunk := make(map[*task]int, len(prompts))
	for i, t := range prompts {
		chunk[t] = min(t.demand(), room/(len(prompts)-i))
		room -= chunk[t]
	}

	rows := 0
	for _, t := range order {
		n := chunk[t]
		if t.decode {
			n = 1
		}
		p := part{task: t, pos: t.pos, n: n, prompt: !t.decode, last: n == len(t.todo)}
		switch {
		case p.prompt && t.allRows:
			p.n = min(p.n, maxPromptRows-rows)
			p.last = p.n == len(t.todo)
			p.rows = p.n
			rows += p.n
		case p.last:
			p.rows = 1
		}
		if p.n > 0 {
			s.parts = append(s.parts, p)
		}
	}
}

// demand is how many tokens of its prompt t would run in one step.
func (t *task) demand() int {
	if t.allRows {
		return min(len(t.todo), maxPromptRows)
	}
	return len(t.todo)
}

// commit makes the step in flight part of its sequences and gives the parts
// whose requests go on, in the order of the entries. For a part that is last
// the caller then calls next or finish. firstRow[i] is the row where parts[i]
// begins in the logits of the step.
func (s *scheduler) commit() (parts []part, firstRow []int) {
	if len(s.parts) > 0 {
		s.steps++
	}
	row := 0
	for _, p := range s.parts {
		t := p.task
		t.tokens = append(t.tokens[:t.pos], t.todo[:p.n]...)
		t.pos = len(t.tokens)
		t.peak = max(t.peak, t.pos)
		t.todo = t.todo[p.n:]
		t.served = s.steps
		t.decode = t.decode || p.last
		if !t.cancelled {
			parts, firstRow = append(parts, p), append(firstRow, row)
		}
		row += p.rows
	}
	s.drop, s.dropFirst = nil, false
	s.finishStep()
	return parts, firstRow
}

// abort forgets the step in flight: nothing of it was committed. The next plan
// gives it again, without the requests cancelled meanwhile.
func (s *scheduler) abort() { s.finishStep() }

// finishStep ends the flight of a step and lets go of cancelled requests.
func (s *scheduler) finishStep() {
	s.inFlight, s.parts = false, nil
	for _, t := range slices.Clone(s.active) {
		if t.cancelled {
			s.release(t)
		}
	}
}

// next gives the token drawn for a request, to be run by the next step. A
// request that is gone is ignored, as in finish.
func (s *scheduler) next(id requestID, token int32) {
	if t := s.find(id); t != nil {
		t.todo = []int32{token}
	}
}

// finish ends a request and keeps its sequence as a session.
func (s *scheduler) finish(id requestID) {
	if t := s.find(id); t != nil {
		s.release(t)
	}
}

// cancel takes a request out, at once or, when the step in flight runs it, as
// soon as that step has finished. What was run stays as a session.
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

// allCancelled reports that the step in flight serves cancelled requests only.
func (s *scheduler) allCancelled() bool {
	return s.inFlight && len(s.parts) > 0 &&
		!slices.ContainsFunc(s.parts, func(p part) bool { return !p.task.cancelled })
}

// noMemory is told, in place of abort, that the model had no memory for the
// step in flight; blamed is the sequence it named, 0 for none. The longest
// unused session goes; if there is none, so does the request that wanted to
// grow, and victim is its id: the blamed one, else the one with the most tokens
// in the step, of equals the youngest.
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
	case len(s.kept) > 0:
		s.evict()
	case worst != nil && s.find(worst.task.id) != nil:
		victim = worst.task.id
		s.remove(worst.task)
		s.drop = append(s.drop, worst.task.seq)
	}
	s.dropFirst = len(s.drop) > 0
	return victim
}

// forget is told, when no step is in flight, that the model has lost all its
// sequences. Nothing is kept, and the requests that had one end: their ids are
// given. Those that no step had yet go on. Ids of sequences are not used again.
func (s *scheduler) forget() (lost []requestID) {
	s.kept, s.drop, s.dropFirst = nil, nil, false
	for _, t := range s.active {
		if t.named {
			lost = append(lost, t.id)
			// In case that the model ran them since it began anew:
			// dropping one that is not known does nothing.
			s.drop = append(s.drop, t.seq)
		}
	}
	s.active = slices.DeleteFunc(s.active, func(t *task) bool { return t.named })
	return lost
}

// find gives an active task, nil if there is none.
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

// release takes a task out and keeps its sequence as the newest session.
func (s *scheduler) release(t *task) {
	s.remove(t)
	if len(t.tokens) == 0 {
		if t.named {
			s.drop = append(s.drop, t.seq)
		}
		return
	}
	s.kept = append(s.kept, &session{seq: t.seq, tokens: t.tokens, peak: t.peak})
	for len(s.kept) > s.keep {
		s.evict()
	}
}

// evict has the next step drop the longest unused session.
func (s *scheduler) evict() {
	s.drop = append(s.drop, s.kept[0].seq)
	s.kept = slices.Delete(s.kept, 0, 1)
}
