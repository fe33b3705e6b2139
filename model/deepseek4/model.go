// Package deepseek4 runs models of the architecture "deepseek4" (DeepSeek V4
// Flash and Pro): attention over a sliding window and a compressed KV cache, a
// mixture of experts, and hyper-connections in place of residual connections.
// Every number comes from the file.
package deepseek4

import (
	"fmt"
	"time"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// DefaultMaxTokens is the most tokens of a step unless Options says otherwise.
const DefaultMaxTokens = 512

// Options are the choices of Open.
type Options struct {
	// Context limits the positions of a sequence; 0 is the file's limit.
	Context int
	// MaxTokens is the most tokens of a step; 0 is DefaultMaxTokens.
	MaxTokens int
	// SequenceBudget is the most bytes that the KV caches of all sequences hold
	// together; 0 for no limit. See model.Sized and SetSequenceBudget.
	SequenceBudget int64
	// Reduce is how the outputs of routed experts are added.
	Reduce parallel.Reduce
	// Wire is the type of the numbers that ranks exchange.
	Wire parallel.Wire
	// Now is the clock of LayerStats; nil is the system's.
	Now func() time.Time
}

// Model is a loaded model. It implements model.Model.
type Model struct {
	c             Config
	w             *weights
	b             kernels.Backend
	routed        *moe.Forward
	meter         *parallel.Meter
	scratch       scratch
	sequences     map[model.SeqID]*sequence
	contextLength int
	maxTokens     int
	wire          parallel.Wire
	digest        []uint32 // of the last Forward
	sizes         footprint
	charged       int64 // bytes of all sequences
	budget        int64 // most of them, 0 for no limit
}

var (
	_ model.Model = (*Model)(nil)
	_ model.Sized = (*Model)(nil)
)

// Open makes the model of a file on a backend. Until Close, the file must stay
// open and nothing else may use the backend. The error names every key and tensor
// that is missing or wrong.
func Open(f *gguf.File, b kernels.Backend, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	m := &Model{c: c, b: b, sequences: map[model.SeqID]*sequence{},
		contextLength: c.Context, maxTokens: o.MaxTokens, wire: o.Wire, meter: parallel.NewMeter(o.Now)}
	if m.maxTokens == 0 {
		m.maxTokens = DefaultMaxTokens
	}
	if m.maxTokens < 1 {
		return nil, fmt.Errorf("deepseek4: MaxTokens is %d; expected 1 or more", o.MaxTokens)
	}
	if o.Context < 0 || o.Context > c.Context {
		return nil, fmt.Errorf("%s: context of %d tokens; the file allows 1 to %d", f.Path(), o.Context, c.Context)
	}
	if o.Context > 0 {
		m.contextLength = o.Context
	}
	m.sizes, m.budget = newFootprint(&m.c, m.contextLength, m.maxTokens), o.SequenceBudget
	for _, mapping := range f.Mappings() {
		if err := b.Map(mapping); err != nil {
			return nil, fmt.Errorf("%s: %s backend: %w", f.Path(), b.Name(), err)
		}
	}
	if m.w, err = load(f, b, &c); err != nil {
		return nil, err
	}
	if err := m.rehearse(); err != nil {
		return nil, fmt.Errorf("%s: the %s backend cannot run the model: %w", f.Path(), b.Name(), err)
	}
	if m.routed, err = moe.NewForward(b, expertShape(&c, m.maxTokens), o.Reduce, m.meter); err != nil {
		return nil, err
	}
	if m.scratch, err = newScratch(b, &c, m.maxTokens); err != nil {
		return nil, fmt.Errorf("deepseek4: scratch memory for steps of %d tokens: %w", m.maxTokens, err)
	}
	return m, nil
}

func expertShape(c *Config, maxTokens int) moe.Shape {
	return moe.Shape{Embd: c.Embd, FF: c.ExpertFF, Experts: c.Experts, Used: c.Used, MaxTokens: maxTokens}
}

// Config is the model's hyper-parameters.
func (m *Model) Config() Config { return m.c }

// Info implements model.Model.
func (m *Model) Info() model.Info {
	return model.Info{Name: m.c.Name, Architecture: arch, Vocab: m.c.Vocab,
		ContextLength: m.contextLength, MaxTokens: m.maxTokens, Rewind: rewind}
}

// SequenceBytes implements model.Sized.
func (m *Model) SequenceBytes(length int) int64 { return m.sizes.sequence(length) }

// SequenceBudget implements model.Sized.
func (m *Model) SequenceBudget() int64 { return m.budget }

// SetSequenceBudget replaces Options.SequenceBudget. It must not run during a step.
func (m *Model) SetSequenceBudget(bytes int64) { m.budget = bytes }

// Len implements model.Model.
func (m *Model) Len(id model.SeqID) int {
	if s := m.sequences[id]; s != nil {
		return s.length
	}
	return 0
}

// Commit implements model.Model.
func (m *Model) Commit(s model.Step) {
	for _, id := range s.Drop {
		if q := m.sequences[id]; q != nil {
			m.freeSequence(q)
			delete(m.sequences, id)
		}
	}
	for _, e := range s.Entries {
		if q := m.sequences[e.Seq]; q != nil {
			if e.Pos == 0 {
				q.peak = 0
			}
			q.length = e.Pos + len(e.Tokens)
			q.peak = max(q.peak, q.length)
		}
	}
}

// dropAll frees the KV caches of all sequences.
func (m *Model) dropAll() {
	for id, s := range m.sequences {
		m.freeSequence(s)
		delete(m.sequences, id)
	}
}

// Close frees the KV caches and buffers. The backend and the file stay the
// caller's.
func (m *Model) Close() error {
	m.dropAll()
	m.routed.Free()
	m.scratch.free(m.b)
	return nil
}
