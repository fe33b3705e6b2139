// Package enginetest has models that run in microseconds, for tests of the users of
// package model: the engine and the API. They have no weights. Their logits depend on
// every token of a sequence, so that a sequence that was rewound, reused or repeated
// wrongly gives other tokens. They check each step against the rules of package model
// (Violations).
//
// NewModel returns a model with random answers, Script one that says a given text, and
// Vocabulary the ids of both.
package enginetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"ringmaster/model"
)

// Options shape a Model. Zero values select the defaults.
type Options struct {
	ContextLength int // default 4096
	MaxTokens     int // most tokens of a step; default 512
	Rewind        int // default 1; -1 for none

	// MemoryLimit is the most tokens that all sequences may hold together; a step beyond
	// it gets a model.MemoryError. 0: no limit.
	MemoryLimit int

	// SequenceBudget is that of model.Sized. A step beyond it is a violation, since the
	// engine knows the sizes beforehand.
	SequenceBudget int64

	// OnForward, if set, runs at the start of each Forward on the engine's goroutine. It
	// may block until ctx ends, as a real model would. Forward returns its error.
	OnForward func(ctx context.Context, step model.Step) error

	// Say, if set, scripts the answers: it gets the tokens of the sequence at the start
	// of an answer and returns the bytes of the answer. The logits make each of these
	// certain in turn, then EOS. See Script.
	Say func(history []int32) string
}

// Model is a deterministic model.Model. A test may read its records while an engine
// drives it.
type Model struct {
	opts  Options
	vocab int
	inUse atomic.Bool // a call is in progress: calls must not overlap

	group // loses all sequences when a test asks for it

	mu         sync.Mutex // guards the fields below, which a test may read
	seqs       map[model.SeqID]*sequence
	known      map[model.SeqID]int // sequences that are not dropped, with the greatest length that a Forward, good or bad, has named
	dropped    map[model.SeqID]bool
	forwarded  *model.Step // the last good Forward, not committed yet
	next       map[model.SeqID]*sequence
	steps      []model.Step
	violations []string
	closed     bool
}

// sequence is the committed state of one sequence.
type sequence struct {
	tokens []int32
	peak   int // greatest length since the sequence was last at 0
	// The current answer, with Options.Say.
	answer string
	said   int // bytes of answer made certain so far
	at     int // length of tokens when byte said-1 (or EOS) was made certain
}

// NewModel returns a model of vocab ids. Its logits are noise between -4 and 4, a hash of
// all tokens so far.
func NewModel(vocab int, opts Options) *Model {
	if opts.ContextLength == 0 {
		opts.ContextLength = 4096
	}
	if opts.MaxTokens == 0 {
		opts.MaxTokens = 512
	}
	switch {
	case opts.Rewind == 0:
		opts.Rewind = 1
	case opts.Rewind < 0:
		opts.Rewind = 0
	}
	return &Model{
		opts: opts, vocab: vocab,
		seqs:    map[model.SeqID]*sequence{},
		known:   map[model.SeqID]int{},
		dropped: map[model.SeqID]bool{},
	}
}

// Script returns a model over Vocabulary that answers every prompt with text, one token
// for each byte, and then ends with EOS, at any temperature.
func Script(text string) *Model {
	return NewModel(Size, Options{Say: func([]int32) string { return text }})
}

// Info describes the model according to its Options.
func (m *Model) Info() model.Info {
	return model.Info{
		Name: "enginetest", Architecture: "hash", Layers: 2, Vocab: m.vocab,
		ContextLength: m.opts.ContextLength, MaxTokens: m.opts.MaxTokens, Rewind: m.opts.Rewind,
	}
}

// Forward checks the step and hashes. A step that breaks the rules is an error, which
// Violations also lists.
func (m *Model) Forward(ctx context.Context, s model.Step) ([][]float32, error) {
	defer m.enter("Forward")()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if err := m.group.refuse(s); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	ctx, epoch, end := m.group.begin(ctx)
	for _, e := range s.Entries {
		m.known[e.Seq] = max(m.known[e.Seq], e.Pos+len(e.Tokens))
	}
	m.mu.Unlock()
	var err error
	if m.opts.OnForward != nil {
		err = m.opts.OnForward(ctx, s)
	}
	end(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	if lost := m.group.lost(epoch); lost != nil {
		return nil, lost
	}
	if err != nil {
		return nil, err
	}
	m.forwarded, m.next = nil, nil
	if err := m.check(s); err != nil {
		return nil, m.violate("Forward: %v", err)
	}
	if held := m.held(); m.opts.SequenceBudget > 0 && held > m.opts.SequenceBudget {
		return nil, m.violate("a step with which all sequences hold %d of %d bytes", held, m.opts.SequenceBudget)
	}
	if err := m.fits(s); err != nil {
		return nil, err
	}
	next := map[model.SeqID]*sequence{}
	var rows [][]float32
	for _, e := range s.Entries {
		q := m.extend(e)
		next[e.Seq] = q
		for i := range e.Tokens {
			last := i == len(e.Tokens)-1
			if e.Want == model.WantAll || e.Want == model.WantLast && last {
				row := m.hashRow(q.tokens[:e.Pos+i+1])
				if last && m.opts.Say != nil {
					m.force(row, q)
				}
				rows = append(rows, row)
			}
		}
	}
	m.forwarded, m.next = new(cloneStep(s)), next
	return rows, nil
}

// Commit commits the last Forward. It panics for any other step, since Commit cannot
// return an error. It ignores a step that was lost.
func (m *Model) Commit(s model.Step) {
	defer m.enter("Commit")()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.group.commitLost {
		m.group.commitLost = false
		return
	}
	if m.forwarded == nil || !reflect.DeepEqual(cloneStep(s), *m.forwarded) {
		panic(m.violate("Commit of a step that is not the last one run: %v", s))
	}
	for id, q := range m.next {
		m.seqs[id] = q
	}
	for _, id := range s.Drop {
		delete(m.seqs, id)
		delete(m.known, id)
		m.dropped[id] = true
	}
	m.steps = append(m.steps, *m.forwarded)
	m.forwarded, m.next = nil, nil
}

// SequenceBytes returns 10 plus the length rounded up to a power of two, at least 4.
func (m *Model) SequenceBytes(length int) int64 {
	if length == 0 {
		return 0
	}
	capacity := int64(4)
	for capacity < int64(length) {
		capacity *= 2
	}
	return 10 + capacity
}

// CheckpointBytes implements model.Sized.
func (m *Model) CheckpointBytes() int64 { return 0 }

// SequenceBudget returns the budget of the Options, or of the last SetSequenceBudget.
func (m *Model) SequenceBudget() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opts.SequenceBudget
}

// SetSequenceBudget changes Options.SequenceBudget.
func (m *Model) SetSequenceBudget(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts.SequenceBudget = bytes
}

// held returns the bytes of all sequences; mu is held.
func (m *Model) held() (n int64) {
	for _, length := range m.known {
		n += m.SequenceBytes(length)
	}
	return n
}

// Len returns the committed length of a sequence.
func (m *Model) Len(id model.SeqID) int {
	defer m.enter("Len")()
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.seqs[id]; q != nil {
		return len(q.tokens)
	}
	return 0
}

// Close ends the model; a second Close is a violation.
func (m *Model) Close() error {
	defer m.enter("Close")()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.violate("closed twice")
	}
	m.closed = true
	return nil
}

// Steps returns a copy of the committed steps so far.
func (m *Model) Steps() []model.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.steps)
}

// Violations lists the calls that broke the rules of package model.
func (m *Model) Violations() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.violations)
}

// Live returns the committed tokens of all sequences.
func (m *Model) Live() map[model.SeqID][]int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := map[model.SeqID][]int32{}
	for id, q := range m.seqs {
		live[id] = slices.Clone(q.tokens)
	}
	return live
}

// Known returns how many sequences a real model might hold memory for: those that a
// Forward has named, whether or not it succeeded, and that have not been dropped.
func (m *Model) Known() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known)
}

// enter records that a call has begun and returns a function that records its end.
func (m *Model) enter(call string) func() {
	if !m.inUse.CompareAndSwap(false, true) {
		m.mu.Lock()
		m.violate("%s while another call runs", call)
		m.mu.Unlock()
		return func() {}
	}
	return func() { m.inUse.Store(false) }
}

// violate records and returns an error; mu is held.
func (m *Model) violate(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	m.violations = append(m.violations, err.Error())
	return err
}

// check checks a step against the rules of package model; mu is held.
func (m *Model) check(s model.Step) error {
	if m.closed {
		return fmt.Errorf("the model is closed")
	}
	seen := map[model.SeqID]bool{}
	for _, id := range s.Drop {
		if seen[id] || m.dropped[id] {
			return fmt.Errorf("sequence %d dropped twice", id)
		}
		seen[id] = true
	}
	total := 0
	for _, e := range s.Entries {
		length, peak := 0, 0
		if q := m.seqs[e.Seq]; q != nil {
			length, peak = len(q.tokens), q.peak
		}
		switch {
		case seen[e.Seq]:
			return fmt.Errorf("sequence %d twice in a step", e.Seq)
		case m.dropped[e.Seq]:
			return fmt.Errorf("sequence %d used after its drop", e.Seq)
		case m.group.gone[e.Seq]:
			return fmt.Errorf("sequence %d used after it was lost", e.Seq)
		case len(e.Tokens) == 0:
			return fmt.Errorf("sequence %d with no tokens", e.Seq)
		case e.Pos < 0 || e.Pos > length:
			return fmt.Errorf("sequence %d at position %d, its length is %d", e.Seq, e.Pos, length)
		case e.Pos > 0 && peak-e.Pos > m.opts.Rewind:
			return fmt.Errorf("sequence %d rewound from %d to %d, at most %d is allowed", e.Seq, peak, e.Pos, m.opts.Rewind)
		case e.Pos+len(e.Tokens) > m.opts.ContextLength:
			return fmt.Errorf("sequence %d up to %d, the context is %d", e.Seq, e.Pos+len(e.Tokens), m.opts.ContextLength)
		}
		for _, t := range e.Tokens {
			if t < 0 || int(t) >= m.vocab {
				return fmt.Errorf("sequence %d with token %d of %d", e.Seq, t, m.vocab)
			}
		}
		seen[e.Seq] = true
		total += len(e.Tokens)
	}
	if total > m.opts.MaxTokens {
		return fmt.Errorf("%d tokens in a step, at most %d are allowed", total, m.opts.MaxTokens)
	}
	return nil
}

// fits refuses the entry that exceeds the memory limit; mu is held. Drop makes room at
// Commit only, as in a real model.
func (m *Model) fits(s model.Step) error {
	if m.opts.MemoryLimit == 0 {
		return nil
	}
	used := 0
	for _, q := range m.seqs {
		used += len(q.tokens)
	}
	for _, e := range s.Entries {
		grow := e.Pos + len(e.Tokens)
		if q := m.seqs[e.Seq]; q != nil {
			grow -= len(q.tokens)
		}
		if used += grow; used > m.opts.MemoryLimit {
			return &model.MemoryError{Seq: e.Seq, Need: int64(used), Have: int64(m.opts.MemoryLimit)}
		}
	}
	return nil
}

// extend returns the sequence as the entry would leave it; mu is held.
func (m *Model) extend(e model.Entry) *sequence {
	q := &sequence{}
	if old := m.seqs[e.Seq]; old != nil {
		*q = *old
	}
	if e.Pos == 0 {
		q.peak = 0
	}
	q.tokens = append(slices.Clone(q.tokens[:e.Pos]), e.Tokens...)
	q.peak = max(q.peak, len(q.tokens))
	if m.opts.Say == nil || e.Want == model.WantNone {
		return q
	}
	// The certain token continues the answer. Any other entry that wants logits is the
	// end of a prompt and begins a new answer.
	if q.at > 0 && len(e.Tokens) == 1 && e.Pos == q.at && e.Tokens[0] == q.certain() {
		q.said++
	} else {
		q.answer, q.said = m.opts.Say(slices.Clone(q.tokens)), 1
	}
	q.at = len(q.tokens)
	return q
}

// certain returns the id that the last row of the sequence made certain.
func (q *sequence) certain() int32 {
	if q.said > len(q.answer) {
		return EOS
	}
	return int32(q.answer[q.said-1])
}

// force makes the next token of the answer certain in row [vocab].
func (m *Model) force(row []float32, q *sequence) { row[q.certain()] = 60 }

// hashRow returns the logits [vocab] after history.
func (m *Model) hashRow(history []int32) []float32 {
	h := fnv.New64a()
	var b [4]byte
	for _, t := range history {
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		h.Write(b[:])
	}
	state := h.Sum64()
	row := make([]float32, m.vocab)
	for i := range row {
		// splitmix64: a well-mixed number for each step of a counter.
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		row[i] = float32(z>>40)/(1<<24)*8 - 4
	}
	return row
}

// cloneStep returns a deep copy with nil for what is empty.
func cloneStep(s model.Step) model.Step {
	c := model.Step{Drop: append([]model.SeqID(nil), s.Drop...)}
	for _, e := range s.Entries {
		e.Tokens = slices.Clone(e.Tokens)
		c.Entries = append(c.Entries, e)
	}
	return c
}
