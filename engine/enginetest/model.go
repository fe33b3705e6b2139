// Package enginetest has models that run in microseconds, for tests of the users of
// package model: the engine and the API. They have no weights. Their logits depend on
// every token of a sequence, so that a sequence that was rewound, forked, reused or
// repeated wrongly gives other tokens. They check each step against the rules of package
// model (Violations).
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
	Tail, Replay  int // those of model.Info

	// MemoryLimit is the most tokens that all sequences may hold together; a step beyond
	// it gets a model.MemoryError. 0: no limit.
	MemoryLimit int

	// SequenceBudget is that of model.Sized. A step beyond it is a violation, since the
	// engine knows the sizes beforehand.
	SequenceBudget int64

	// CheckpointBytes is that of model.Sized.
	CheckpointBytes int64

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
	known      map[model.SeqID]holding // sequences that are not dropped
	dropped    map[model.SeqID]bool
	forwarded  *model.Step // the last good Forward, not committed yet
	next       map[model.SeqID]*sequence
	steps      []model.Step
	work       Work
	violations []string
	closed     bool
}

// Work counts what a Model did.
type Work struct {
	Tokens int // of the entries of all good Forwards, committed or not
	Forks  int // committed
}

// holding is what a real model might hold memory for.
type holding struct {
	length      int // the greatest that a Forward, good or bad, has named
	checkpoints int // committed
}

// sequence is the committed state of one sequence.
type sequence struct {
	tokens      []int32
	partial     int     // as model.Entry.Until says
	again       []int32 // of a fork with Replay until it has run them: the tokens that it must run
	peak        int     // greatest length since the sequence was last at 0, or what counts as such for a fork
	checkpoints []int   // their lengths, ascending; never changed in place
	// The current answer, with Options.Say.
	answer string
	said   int // bytes of answer made certain so far
	at     int // length of tokens when byte said-1 (or EOS) was made certain

	before *sequence // of the step that extended it, until that step is committed
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
		known:   map[model.SeqID]holding{},
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
		ContextLength: m.opts.ContextLength, MaxTokens: m.opts.MaxTokens, Rewind: m.opts.Rewind, Tail: m.opts.Tail, Replay: m.opts.Replay,
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
	m.name(s)
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
	next, err := m.prepare(s)
	if err != nil {
		return nil, m.violate("Forward: %v", err)
	}
	if held := m.held(next); m.opts.SequenceBudget > 0 && held > m.opts.SequenceBudget {
		return nil, m.violate("a step with which all sequences hold %d of %d bytes", held, m.opts.SequenceBudget)
	}
	if err := m.fits(s); err != nil {
		return nil, err
	}
	var rows [][]float32
	for _, e := range s.Entries {
		q := next[e.Seq]
		m.work.Tokens += len(e.Tokens)
		for i := range e.Tokens {
			last := i == len(e.Tokens)-1
			if e.Want == model.WantAll || e.Want == model.WantLast && last {
				row := m.hashRow(q.tokens[:e.Pos+i+1])
				switch {
				case m.opts.Say == nil:
				case last:
					m.force(row, q)
				case q.before.continues(e, i+1):
					said := *q.before
					said.said += i + 1
					m.force(row, &said)
				}
				rows = append(rows, row)
			}
		}
	}
	m.forwarded, m.next = new(cloneStep(s)), next
	return rows, nil
}

// Commit commits the last Forward, or its truncated form. It panics for any other step,
// since Commit cannot return an error. It ignores a step that was lost.
func (m *Model) Commit(s model.Step) {
	defer m.enter("Commit")()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.group.commitLost {
		m.group.commitLost = false
		return
	}
	if m.forwarded != nil {
		m.truncate(s)
	}
	if m.forwarded == nil || !reflect.DeepEqual(cloneStep(s), *m.forwarded) {
		panic(m.violate("Commit of a step that is not the last one run: %v", s))
	}
	for id, q := range m.next {
		q.before = nil
		m.seqs[id] = q
		m.known[id] = holding{m.known[id].length, len(q.checkpoints)}
	}
	for _, id := range s.Drop {
		delete(m.seqs, id)
		delete(m.known, id)
		m.dropped[id] = true
	}
	m.steps = append(m.steps, *m.forwarded)
	m.work.Forks += len(s.Forks)
	m.forwarded, m.next = nil, nil
}

// truncate makes the step that ran the one that s says, if s is its truncated form; mu is
// held.
func (m *Model) truncate(s model.Step) {
	if len(s.Entries) != len(m.forwarded.Entries) {
		return
	}
	kept := m.forwarded.Kept(s)
	if kept == nil {
		return
	}
	step, err := m.forwarded.Truncated(kept)
	if err != nil {
		m.violate("Commit: %v", err)
		return
	}
	next, err := m.prepare(step)
	if err != nil {
		m.violate("Commit: %v", err)
		return
	}
	m.forwarded, m.next = new(cloneStep(step)), next
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
func (m *Model) CheckpointBytes() int64 { return m.opts.CheckpointBytes }

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

// Checkpoints returns the lengths of the committed checkpoints of all sequences that have
// any.
func (m *Model) Checkpoints() map[model.SeqID][]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := map[model.SeqID][]int{}
	for id, q := range m.seqs {
		if len(q.checkpoints) > 0 {
			at[id] = slices.Clone(q.checkpoints)
		}
	}
	return at
}

// Work returns what the model has done so far.
func (m *Model) Work() Work {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.work
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
