// Package decoder is what every decoder-only model shares: the checks of a step, the
// table of sequences with commit, rewind and budget, the digest that ranks compare, the
// memory plan, buffers. An architecture adds its configuration, its weights, its KV cache
// and its layers, as a Network:
//
//	m, err := decoder.Open(f, backend, options, limit, load) // in the architecture's Open
//	logits, err := m.Forward(ctx, step)                      // of the rows that the step wants
//	m.Commit(step)
package decoder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ringmaster/distributed"
	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/model/snapshot"
	"ringmaster/moe"
	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// Cache is the KV cache of one sequence in a Network. Reads change nothing, and the next
// step overwrites what a step that was not committed has written.
type Cache interface {
	// Grow makes room for so many positions. It is called only between steps, when no op
	// is encoded. Its error is the backend's, for lack of memory.
	Grow(length int) error
	// State lists the memory that steps may still read of the committed tokens [from,
	// length) of a sequence. peak is its greatest length, and it has room for them. Names
	// and lengths depend on from, length and peak alone. The listed state of a position
	// does not change until a rewind to it or before, and a longer sequence lists no more
	// of it. Sections that later tokens overwrite are marked; a checkpoint is a copy of
	// those of State(0, length, length+Info.Rewind).
	State(from, length, peak int) []snapshot.Section
	// StateOf is State of some layers, and of what belongs to no layer.
	StateOf(layers parallel.Range, from, length, peak int) []snapshot.Section
	// Free releases the memory.
	Free()
}

// Network is what an architecture adds: layers over KV caches of type C.
type Network[C Cache] interface {
	// NewCache allocates the KV cache of a new sequence, without room. Its
	// error is the backend's, for lack of memory.
	NewCache() (C, error)
	// Layout names what Cache.State lists, with a version.
	Layout() string
	// CacheBytes is the memory of a KV cache; see model.Sized.
	CacheBytes(length int) int64
	// CheckpointBytes is the most bytes, in whole pages, of the overwritten sections that
	// State lists for any length and a peak of length+Info.Rewind.
	CheckpointBytes() int64
	// SetSpan makes these the layers that steps run and KV caches have, before there are any;
	// at first it is all.
	SetSpan(layers parallel.Range)
	// Splits reports whether a span may begin with the layer, because that layer and those
	// behind it read nothing of a step but what Carried lists.
	Splits(layer int) bool
	// Carried is what passes from one layer to the next.
	Carried() []Carried
	// Join makes the network one rank of a group that runs its span, with its part of a
	// checked placement, or alone with nil. It is called between steps, possibly again, and
	// has no effect on KV caches.
	Join(g *distributed.Group, p parallel.Placement) error
	// ReserveHead allocates the buffers of the output head for so many rows.
	ReserveHead(rows int) error
	// Layers runs Step.Layers of a step with at least one row, from what Carried lists unless
	// they begin with the first layer. Then every rank has what passes on, or the final
	// hidden states, of its own rows, and all have those of the rows Kept.
	Layers(ctx context.Context, s Step[C]) error
	// Head computes the logits of wanted rows [wanted][vocabulary] after the layers have
	// run, and flushes. On a rank other than 0 it computes nothing.
	Head(ctx context.Context, wanted []int32) ([][]float32, error)
	// Experts is the weights of the routed experts of a layer, nil for a layer that has
	// none.
	Experts(layer int) *moe.Layer
	// Hidden is the final hidden state of a row of the last step.
	Hidden(row int) []float32
	// Free releases the buffers.
	Free()
}

// Carried is a buffer of a Network [rows of the step][Width] with what passes from one layer
// to the next.
type Carried struct {
	Data  []float32
	Width int
}

// Step is a checked step that has the memory that it needs. Its slices are valid until
// the next.
type Step[C Cache] struct {
	Segments []Segment[C] // one for each entry, or several of a sequence, in the order of positions
	Rows     int
	Layers   parallel.Range // that run: the span of the network or, of a step that a helper continues, its first ones
	Live     parallel.Range // of them, those that the layer computes; see Leaving
	IDs      []int32        // [Rows] token ids, in memory of the backend
	Pos      []int32        // [Rows] positions, in memory of the backend
	Wanted   []int32        // rows of the wanted logits, ascending
	End      int            // most positions that a token of the step sees; it decides which exchanges happen

	// Cut [Size] is which rows each rank computes of what the placement replicates, nil
	// if every rank computes all. Buffers keep the rows of the step in their places
	// either way: a rank writes those of Own, and gathers the rows of the others before
	// an op reads them.
	Cut  []parallel.Range
	Own  parallel.Range
	Kept []int32 // rows that all ranks need after the last layer (hidden state), ascending

	helped  int       // first rows of which the helper computes the last layers
	others  bool      // on the helper: rank 0 runs it alone
	missing []part[C] // what the helper lacks of the positions before

	starts []int // [layers] first rows of which each layer has an output; nil: of all
}

// Segment is one entry of a step: the rows [First, First+N) of the step's buffers
// are positions Pos to Pos+N-1 of a sequence.
type Segment[C Cache] struct {
	Seq           model.SeqID
	Cache         C
	First, N, Pos int
	// Known is the position before which the cache has the history beyond the windows; only
	// windows are made of these positions. 0 except in a replay.
	Known int
}

// Part is the rows of the segment that are within r, if there are any.
func (g Segment[C]) Part(r parallel.Range) (part Segment[C], ok bool) {
	first, end := max(g.First, r.Start), min(g.First+g.N, r.End)
	if first >= end {
		return part, false
	}
	part = Segment[C]{Seq: g.Seq, Cache: g.Cache, First: first, N: end - first, Pos: g.Pos + first - g.First, Known: g.Known}
	return part, true
}

// Options describe a model to New.
type Options struct {
	Info    model.Info
	Layers  int // of the network
	Sizes   parallel.Sizes
	Routed  *moe.Forward    // routed experts of the network; the Model frees it
	Meter   *parallel.Meter // counts of the layers
	Wire    parallel.Wire   // type of the numbers that ranks exchange
	Budget  int64           // of the KV caches of all sequences, 0 for no limit
	Backend kernels.Backend
	// Fingerprint is that of the model file; a snapshot belongs to it.
	Fingerprint string
	// Tensors are those of the file that the model uses, for Examine.
	Tensors []gguf.Tensor
}

// Model runs a Network. It implements model.Model and model.Sized, and has what replica
// asks of the model of a rank.
type Model[C Cache] struct {
	o         Options
	network   Network[C]
	stairs    Stairs             // no rows are left out if From is behind the last layer
	placement parallel.Placement // nil without a group; with stages that of this one
	rank      int                // in placement
	span      parallel.Range     // layers that this rank runs
	spans     sync.RWMutex       // held while it changes, because SequenceBytes may be called by any goroutine
	pipeline  *pipeline          // nil without stages
	sequences map[model.SeqID]*sequence[C]
	charged   int64 // bytes of all sequences
	ids, pos  []int32
	buffers   []Buffer
	reader    kernels.Reader             // of memory that the host reads slowly
	step      *Step[C]                   // prepared and not run
	rewinds   []rewound[C]               // of the prepared step
	changes   map[model.SeqID]*change[C] // of the prepared step, until it is committed
	digest    []uint32                   // of the last Run
	examined  []block                    // nil before the first Extent or Examine
	drafter   *drafter[C]                // nil without a block for multi-token prediction
	owed      *owed[C]                   // what the helper still sends of the last step; nil: nothing
	helped    map[model.SeqID]bool       // sequences of which the helper has run an entry of the last step; nil after its commit
	ran       *Step[C]                   // the last step, if it can be committed and there is a drafter
	joined    joined                     // the place in the group of the last Join

	// weights lists the bytes of mappings that the ops read at a place in a group; nil: not known.
	weights func(joined) ([]kernels.Span, error)
}

// New makes a model of a network. Close frees both. Its error is the backend's, for
// lack of memory.
func New[C Cache](n Network[C], o Options) (*Model[C], error) {
	o.Info.Layers = o.Layers
	stairs := Stairs{From: o.Layers, Group: 1}
	if s, ok := n.(Staircase); ok {
		// On a GPU the bits of a row depend on whether it is one of many.
		if stairs = s.Stairs(); kernels.RowsAgree(o.Backend) {
			o.Info.Tail, o.Info.Replay = stairs.tail(o.Layers, o.Info.Rewind), stairs.replay(o.Layers, o.Info.Rewind)
		}
	}
	m := &Model[C]{o: o, network: n, stairs: stairs, span: parallel.Range{End: o.Layers}, sequences: map[model.SeqID]*sequence[C]{}, changes: map[model.SeqID]*change[C]{}, reader: kernels.Reader{Backend: o.Backend}}
	m.buffers = []Buffer{{I32: &m.ids, Len: o.Info.MaxTokens}, {I32: &m.pos, Len: o.Info.MaxTokens}}
	if err := Allocate(o.Backend, m.buffers); err != nil {
		return nil, m.errorf("ids and positions of a step: %w", err)
	}
	return m, nil
}

// StepBytes is the bytes that New allocates.
func StepBytes(maxTokens int) int64 { return 2 * 4 * int64(maxTokens) }

// errorf is an error that begins with the architecture.
func (m *Model[C]) errorf(format string, a ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{m.o.Info.Architecture}, a...)...)
}

// Info implements model.Model.
func (m *Model[C]) Info() model.Info { return m.o.Info }

// Sizes is what a placement divides.
func (m *Model[C]) Sizes() parallel.Sizes { return m.o.Sizes }

// Prepare checks a step and allocates what it needs, so that Run as the next call does
// not fail for lack of memory (except for working buffers of the backend). It takes the
// checkpoints of the step and copies the state of its forks; Commit makes both part of
// their sequences. Sequences that it makes exist until they are dropped. The logits of the
// last Run become invalid. Its error is a model.MemoryError or says what is wrong with the
// step.
func (m *Model[C]) Prepare(step model.Step) error {
	m.step = nil
	m.discard()
	if m.pipeline.helps() {
		return m.prepareHelp(step)
	}
	if step.Help != nil && !m.pipeline.helped() {
		return m.errorf("a step for a helper, but the group has none")
	}
	if step.Help == nil || len(step.Checkpoints)+len(step.Forks) > 0 || m.owed != nil && m.owed.pending == nil {
		if err := m.settle(); err != nil {
			return err
		}
	}
	if err := m.prepare(step); err != nil {
		m.discard()
		return err
	}
	return nil
}

func (m *Model[C]) prepare(step model.Step) error {
	forks, err := m.checkForks(step)
	if err != nil {
		return err
	}
	rows, err := m.check(step, forks)
	if err != nil {
		return err
	}
	// The budget is charged first, so that nothing is allocated beyond it.
	if err := m.prepareCheckpoints(step); err != nil {
		return err
	}
	if err := m.reserveForks(step, forks); err != nil {
		return err
	}
	caches := make([]C, len(step.Entries))
	for i, e := range step.Entries {
		if caches[i], err = m.reserve(e.Seq, e.Pos+len(e.Tokens)); err != nil {
			return err
		}
	}
	pieces := m.pieces(step, forks)
	helped := 0
	if step.Help != nil {
		pieces, helped = helpedEntries(step, m.o.Layers)
	}
	s := Step[C]{Segments: make([]Segment[C], len(pieces)), Rows: rows, Layers: m.span, Live: parallel.Range{End: rows},
		IDs: m.ids[:rows], Pos: m.pos[:rows]}
	if m.pipeline == nil || m.pipeline.helped() && step.Help == nil { // of a part of the rows it says nothing
		s.starts = m.starts(pieces)
	}
	first := 0
	for i, p := range pieces {
		e := step.Entries[p.entry]
		s.Segments[i] = Segment[C]{Seq: e.Seq, Cache: caches[p.entry], First: first, N: p.n, Pos: e.Pos + p.at, Known: p.known}
		s.Wanted = p.wanted(s.Wanted, e, first)
		s.End = max(s.End, e.Pos+len(e.Tokens))
		first += p.n
	}
	s.divide(m.placement.Cut(rows, m.leastRows()), m.rank)
	if err := m.network.ReserveHead(len(s.Wanted)); err != nil {
		return m.errorf("logits of %d tokens: %w: %w", len(s.Wanted), model.ErrNoMemory, err)
	}
	if err := m.makeForks(step, forks); err != nil {
		return m.errorf("%w", err)
	}
	m.rewinds = m.rewinds[:0]
	for _, e := range step.Entries {
		if q := m.sequences[e.Seq]; e.Pos < max(q.intact, q.copied.is.length) {
			m.rewinds = append(m.rewinds, rewound[C]{q, e.Pos})
		}
	}
	for i, p := range pieces {
		g := s.Segments[i]
		copy(s.IDs[g.First:], step.Entries[p.entry].Tokens[p.at:p.at+p.n])
		for t := range g.N {
			s.Pos[g.First+t] = int32(g.Pos + t)
		}
	}
	if step.Help != nil {
		s.helped, s.missing = helped, m.lacks(step)
		s.Wanted = inEntries(s.Wanted, s.Segments, step)
	}
	m.step = &s
	return nil
}

// leastRows is the minimum number of rows of a rank in a divided step. On a GPU the bits
// of a row depend on whether it is one of many. A rank must then have enough rows to
// count as many, because its rows must have the bits of the whole step.
func (m *Model[C]) leastRows() int {
	if kernels.RowsAgree(m.o.Backend) {
		return 1
	}
	return 16
}

// divide divides the rows of a step by cut, nil for not at all.
func (s *Step[C]) divide(cut []parallel.Range, rank int) {
	if s.Own = (parallel.Range{End: s.Rows}); cut == nil {
		return
	}
	s.Cut, s.Own, s.Kept = cut, cut[rank], s.compared()
}

// compared returns the rows that the digest covers, ascending: those that logits are
// wanted of, because any of them may decide a token, and the last of each entry that the
// last layer has an output of.
func (s *Step[C]) compared() []int32 {
	rows, last := slices.Clone(s.Wanted), *s
	if len(s.starts) > 0 {
		last = s.Leaving(len(s.starts) - 1)
	}
	for _, g := range last.Segments {
		last := int32(g.First + g.N - 1)
		if i, found := slices.BinarySearch(rows, last); !found {
			rows = slices.Insert(rows, i, last)
		}
	}
	return rows
}

// Run runs the step that was prepared last and has not run yet; see
// model.Model.Forward for what it returns.
func (m *Model[C]) Run(ctx context.Context) (logits [][]float32, err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		// Rehearse should have found it.
		misuse, ok := v.(*kernels.Misuse)
		if !ok {
			panic(v)
		}
		logits, err = nil, m.abandon(misuse)
	}()
	m.digest, m.helped = m.digest[:0], nil
	s := m.step
	if m.step = nil; s == nil {
		return nil, m.errorf("Run without a prepared step")
	}
	m.noteHelped(s)
	if m.drafter != nil {
		m.ran = nil
		m.drafter.follow(ctx) // before the buffers are overwritten
	}
	if s.Rows == 0 {
		if s.others {
			m.digest = m.pipeline.digest(m.digest, nil, m.o.Layers)
		}
		return nil, nil
	}
	for _, r := range m.rewinds {
		r.q.intact = min(r.q.intact, r.pos)
		r.q.copied = copied[C]{} // of a fork
	}
	m.o.Meter.StartStep()
	m.o.Routed.StartStep(m.o.Layers)
	switch {
	case m.pipeline.helps():
		err = m.runHelper(ctx, s)
	case s.helped > 0:
		err = m.runHelped(ctx, s)
	case m.pipeline == nil || m.pipeline.helped():
		err = m.network.Layers(ctx, *s)
	default:
		err = m.runStage(ctx, s)
	}
	if err == nil {
		logits, err = m.network.Head(ctx, s.Wanted)
	}
	if err != nil {
		return nil, m.abandon(err)
	}
	if err := m.digestStep(s); err != nil {
		return nil, m.abandon(err)
	}
	if m.drafter != nil {
		m.ran = s
	}
	m.helped = m.helpedOf(s)
	return logits, nil
}

// Forward implements model.Model: it is Prepare and Run.
func (m *Model[C]) Forward(ctx context.Context, step model.Step) ([][]float32, error) {
	if err := m.Prepare(step); err != nil {
		m.digest = m.digest[:0]
		return nil, err
	}
	return m.Run(ctx)
}

// abandon ends a step after err. It flushes the encoded ops, so that none of them uses
// memory after the step.
func (m *Model[C]) abandon(err error) error {
	if ferr := m.o.Backend.Flush(); ferr != nil && !errors.Is(err, ferr) {
		err = fmt.Errorf("%w; then: %w", err, ferr)
	}
	return m.errorf("%w", err)
}

// Join makes the model one rank of a group and computes its part of the placement. It is
// called for each epoch, possibly with another placement, or with nil to run without a
// group; a group of one rank is like nil. It must not run during a step.
//
// From then on all ranks must run the same steps, because their layers combine their
// outputs over the group. Rank 0 gets the logits. Sequences stay, because a KV cache has
// all rows of its sequence whatever the placement: those that all ranks hold at the same
// committed lengths continue; Forget drops them. A step that was prepared or that failed
// before is gone, and may run again. One that has run can still be committed.
//
// The group stays the caller's, and only Run uses it. Errors of the arguments wrap
// distributed.ErrArgument; after an error the model must be joined again before it is
// used.
//
// In a group the context of Run must be the epoch's, because a step that is cancelled on
// one rank alone leaves the others waiting until the group fails.
func (m *Model[C]) Join(g *distributed.Group, p parallel.Placement) error { return m.join(g, nil, p) }

// JoinStage is Join of a placement with stages. inside is the group of the ranks of this
// one's stage, which Placement.SplitStages makes. A rank then has only the KV caches of its
// layers: if these change, its sequences are dropped.
func (m *Model[C]) JoinStage(g, inside *distributed.Group, p parallel.Placement) error {
	return m.join(g, inside, p)
}

func (m *Model[C]) join(g, inside *distributed.Group, p parallel.Placement) error {
	m.joined = joinedTo(g, inside, p)
	m.step, m.digest, m.helped = nil, m.digest[:0], nil
	_ = m.collect() // settle computes what has not arrived
	if len(p) > 1 && !p.Helped() {
		if err := m.settle(); err != nil { // as long as no group divides the layers
			return err
		}
	}
	if g != nil {
		if err := p.Check(m.o.Sizes, g.Size()); err != nil {
			return m.errorf("%w", err)
		}
		if g.Size() == 1 {
			g, p = nil, nil
		}
	} else {
		p = nil
	}
	m.pipeline, m.rank = nil, 0
	if p.Helped() {
		if err := m.enterHelp(g, p); err != nil {
			return m.errorf("%w", err)
		}
		g, p = nil, nil
	} else if stages := p.Stages(); stages != nil {
		var err error
		if g, p, err = m.enterStage(g, inside, p, stages); err != nil {
			return m.errorf("%w", err)
		}
	} else {
		m.setSpan(parallel.Range{End: m.o.Layers})
	}
	m.placement = p
	if g != nil {
		m.rank = g.Rank()
	}
	if err := m.o.Routed.Join(g, p, m.o.Wire); err != nil {
		return m.errorf("%w", err)
	}
	if err := m.network.Join(g, p); err != nil {
		return m.errorf("%w", err)
	}
	if m.pipeline != nil && g == nil {
		m.o.Meter.Join(m.pipeline.world) // a stage of one rank waits for other stages alone
	}
	return nil
}

// Forget drops all sequences. It must not run during a step.
func (m *Model[C]) Forget() {
	m.step = nil // it has KV caches
	m.dropAll()
}

// Drop drops a sequence, if it is known. It must not run during a step.
func (m *Model[C]) Drop(id model.SeqID) {
	m.step = nil // it may have its KV cache
	m.drop(id)
}

// Rule is how the chosen experts of the last Run were assigned to the ranks of the group,
// and this rank; false without a group.
func (m *Model[C]) Rule() (rule assign.Rule, rank int, grouped bool) { return m.o.Routed.Rule() }

// Chosen is how often rows chose each expert [layers][experts] in committed steps in which
// this was rank 0 of a group. Any goroutine may call it, even after Close.
func (m *Model[C]) Chosen() [][]uint64 { return m.o.Routed.Chosen() }

// LayerStats are the counts of each layer since the model was opened. It may be
// called by any goroutine at any time.
func (m *Model[C]) LayerStats() []parallel.LayerStats { return m.o.Meter.Stats() }

// Exchanges are the counts of the exchanges of each layer [layers+1], those of the output
// head last, since the model was opened. It may be called at any time.
func (m *Model[C]) Exchanges() [][]parallel.Exchange { return m.o.Meter.Exchanges() }

// Tabled is a Network that reads rows of tables on disk.
type Tabled interface {
	// TableRows counts the rows that steps took from memory and those that they read. Any
	// goroutine may call it at any time.
	TableRows() (kept, read uint64)
}

// TableRows is that of the network; false if it has no tables. Any goroutine may call it at
// any time.
func (m *Model[C]) TableRows() (kept, read uint64, ok bool) {
	t, ok := m.network.(Tabled)
	if !ok {
		return 0, 0, false
	}
	kept, read = t.TableRows()
	return kept, read, true
}

// Rehearse runs a step of one token at each of the positions of a sequence, as if it had
// been committed up to there. On a backend that checks the arguments of every op it finds
// what would be misuse of an op later.
func (m *Model[C]) Rehearse(want model.Want, positions ...int) error {
	for _, pos := range positions {
		if q := m.sequences[1]; q != nil {
			q.standing = standing{length: pos, peak: pos, intact: pos}
		}
		s := model.Step{Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: []int32{0}, Want: want}}}
		if m.pipeline.helps() { // it has no part in other steps
			s.Help = []int{pos}
		}
		if _, err := m.Forward(context.Background(), s); err != nil {
			return err
		}
	}
	return nil
}

// Close frees the KV caches and buffers. The backend and the file stay the caller's.
func (m *Model[C]) Close() error {
	m.dropAll()
	if m.drafter != nil {
		_ = m.drafter.block.Close() // it returns none
	}
	m.o.Routed.Free()
	m.network.Free()
	m.reader.Free()
	Free(m.o.Backend, m.buffers)
	return nil
}
