package decoder

import (
	"context"
	"fmt"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// Shape is what the buffers, the exchanges and the placements of every architecture
// depend on.
type Shape struct {
	Arch, Name string // of the file: its architecture, and the model
	Layers     int
	Context    int // most positions that the file allows
	Rewind     int // how far a sequence can be rewound behind its greatest length, in positions; 0: to its start
	Vocab      int
	Embd       int // width of a row between the sub-layers
	Width      int // width of a row of the final hidden state

	Experts, Used, ExpertFF int
	SharedFF                int            // of the shared expert; 0 for none
	Sizes                   parallel.Sizes // what a placement divides
	DenseParts              int            // segments of the dense FFN of layers without experts that a placement divides; 0 for none
}

func (s *Shape) routed(maxTokens int) moe.Shape {
	return moe.Shape{Embd: s.Embd, FF: s.ExpertFF, Experts: s.Experts, Used: s.Used,
		SharedFF: s.SharedFF, Segments: s.Sizes.Shared, MaxTokens: maxTokens}
}

// terms is the shape of outputs that are divided into so many parts.
func (s *Shape) terms(parts, maxTokens int) parallel.TermsShape {
	return parallel.TermsShape{Terms: parts, Width: s.Embd, MaxTokens: maxTokens}
}

// Base is what the forward passes of all architectures have. An architecture embeds it in
// its network, and gets the methods of Network that do not depend on layers and caches.
type Base struct {
	Backend   kernels.Backend
	Routed    *moe.Forward
	Heads     *parallel.Terms     // outputs of the groups of heads
	DenseFFN  *parallel.Terms     // outputs of the segments of a dense FFN; nil if no placement divides it
	Gather    *parallel.RowGather // rows of a step that ranks divide
	Logits    *Head
	Meter     *parallel.Meter
	Sizes     parallel.Sizes
	Span      parallel.Range // layers that this rank runs
	Context   int            // most positions of a sequence
	MaxTokens int            // most tokens of a step

	layers  int // of the model
	wire    parallel.Wire
	width   int       // Shape.Width
	picks   []int32   // [wanted] rows of the wanted logits
	picked  []float32 // [wanted][width]
	wanted  int       // capacity of the two above and of HeadBuffers, in rows
	buffers buffered
}

// buffered is a network with the buffers of an architecture.
type buffered interface {
	// StepBuffers are the buffers of a step of so many tokens, without those of the
	// output head.
	StepBuffers(tokens int) []Buffer
	// HeadBuffers are what the output head needs for so many rows besides the rows that
	// Pick gathers and the logits.
	HeadBuffers(rows int) []Buffer
}

// newBase makes the base of a network that has no buffers yet. After an error, which is
// the backend's, nothing is allocated.
func newBase(s *Shape, b kernels.Backend, o OpenOptions) (*Base, error) {
	m := parallel.NewMeter(o.Now)
	routed, err := moe.NewForward(b, s.routed(o.MaxTokens), o.Reduce, m)
	if err != nil {
		return nil, err
	}
	base := &Base{Backend: b, Routed: routed, Gather: parallel.NewRowGather(b, m.For(parallel.ForRows)), Logits: NewHead(b, s.Vocab, m),
		Meter: m, Sizes: s.Sizes, Span: parallel.Range{End: s.Layers}, Context: o.Context, MaxTokens: o.MaxTokens, layers: s.Layers, wire: o.Wire, width: s.Width}
	base.Heads, err = parallel.NewTerms(b, o.Reduce, s.terms(s.Sizes.Heads, o.MaxTokens), m.For(parallel.ForAttention))
	if err != nil {
		routed.Free()
		return nil, err
	}
	if s.DenseParts > 0 {
		base.DenseFFN, err = parallel.NewTerms(b, o.Reduce, s.terms(s.DenseParts, o.MaxTokens), m.For(parallel.ForDenseFFN))
	}
	if err != nil {
		routed.Free()
		base.Heads.Free()
		return nil, err
	}
	return base, nil
}

// AsBase is the base that a forward pass embeds.
func (m *Base) AsBase() *Base { return m }

// allocate allocates the buffers of a step.
func (m *Base) allocate(buffers buffered) error {
	m.buffers = buffers
	return Allocate(m.Backend, buffers.StepBuffers(m.MaxTokens))
}

// Splits implements Network: a layer reads nothing of a step but what the layer before it
// passes on.
func (m *Base) Splits(int) bool { return true }

// OfSpan names the layers of the span if they are not all, for Layout.
func (m *Base) OfSpan() string {
	if m.Span == (parallel.Range{End: m.layers}) {
		return ""
	}
	return fmt.Sprintf(", layers %d to %d", m.Span.Start, m.Span.End-1)
}

// SetSpan implements Network.
func (m *Base) SetSpan(layers parallel.Range) { m.Span = layers }

// Leave sends all ranks the rows of fields that each needs after its last layer, if cut
// divides the rows of the step. Its error is the group's.
func (m *Base) Leave(ctx context.Context, cut []parallel.Range, kept []int32, fields ...parallel.Field) error {
	if err := m.Gather.Some(ctx, cut, kept, fields...); err != nil {
		return fmt.Errorf("rows behind layer %d: %w", m.Span.End-1, err)
	}
	return nil
}

// Join implements Network. The first stage has the output head.
func (m *Base) Join(g *distributed.Group, p parallel.Placement) error {
	if m.Span.Start == 0 {
		m.Logits.Join(g, p.Vocabulary())
	} else {
		m.Logits.Forgo()
	}
	m.Gather.Join(g)
	if m.DenseFFN != nil {
		if err := m.DenseFFN.Join(g, p.Shared(), m.wire, p.DividesRows()); err != nil {
			return err
		}
	}
	return m.Heads.Join(g, p.Heads(), m.wire, p.DividesRows())
}

// HeadRows is the rows of a layer for which this rank computes its heads: all if heads are
// divided, otherwise those that it owns.
func (m *Base) HeadRows(own, rows parallel.Range) parallel.Range {
	if m.Heads.Divided() {
		return rows
	}
	return own
}

// GatherRows sends rows of fields to all ranks if cut divides the rows of the step. Its
// error is the group's.
func (m *Base) GatherRows(ctx context.Context, cut []parallel.Range, fields ...parallel.Field) error {
	if cut == nil {
		return nil
	}
	if err := m.Gather.Start(ctx, cut, fields...); err != nil {
		return err
	}
	return m.Gather.Finish()
}

// OutputOfHeads encodes the product of w [D][all columns] with x [rows][columns of this
// rank's heads] to where Heads takes it, which may be y.
func (m *Base) OutputOfHeads(w kernels.Weight, x, y []float32, rows int) {
	own, parts := m.Heads.Own(), m.Sizes.Heads
	mine := m.Heads.Mine(y)
	if m.Heads.Separate() {
		m.Backend.MatMulGrouped(mine, x, rows, w.ColumnGroups(parts).SliceRange(own.Start, own.End))
		return
	}
	each := w.Cols / parts
	m.Backend.MatMul(x, rows, kernels.Product{W: w.ColumnRange(own.Start*each, own.End*each), Out: mine})
}

// CombineHeads adds up the outputs of heads of all ranks in y, which has this rank's
// rows. cut divides the rows among the ranks, or is nil. Its error is the backend's or
// the group's.
func (m *Base) CombineHeads(ctx context.Context, rows int, cut []parallel.Range, y []float32) error {
	if !m.Heads.Divided() {
		cut = nil
	}
	if err := m.Heads.Start(ctx, rows, cut); err != nil {
		return err
	}
	return m.Heads.Finish(ctx, y)
}

// headBuffers are the buffers of the output head for so many rows, without the logits.
func (m *Base) headBuffers(rows int) []Buffer {
	return append([]Buffer{{I32: &m.picks, Len: rows}, {F32: &m.picked, Len: rows * m.width}}, m.buffers.HeadBuffers(rows)...)
}

// ReserveHead implements Network.
func (m *Base) ReserveHead(rows int) error {
	if !m.Logits.Takes() {
		return nil
	}
	if rows > m.wanted {
		Free(m.Backend, m.headBuffers(0))
		m.wanted = 0
		if err := Allocate(m.Backend, m.headBuffers(rows)); err != nil {
			return err
		}
		m.wanted = rows
	}
	return m.Logits.Reserve(rows)
}

// Pick encodes a copy of the wanted rows of hidden [rows of the step][Width] and returns
// it, or nil if this rank has no part in the logits of any row.
func (m *Base) Pick(hidden []float32, wanted []int32) []float32 {
	if len(wanted) == 0 || !m.Logits.Takes() {
		return nil
	}
	copy(m.picks, wanted)
	m.Backend.Gather(m.picked, hidden, m.picks[:len(wanted)], m.width)
	return m.picked
}

// PickToRead is Pick for callers that do not write the rows: without a copy where they are the
// first ones in order.
func (m *Base) PickToRead(hidden []float32, wanted []int32) []float32 {
	for i, row := range wanted {
		if int(row) != i {
			return m.Pick(hidden, wanted)
		}
	}
	if len(wanted) == 0 || !m.Logits.Takes() {
		return nil
	}
	return hidden
}

// Free implements Network.
func (m *Base) Free() {
	m.freeTerms()
	m.Logits.Free()
	Free(m.Backend, m.buffers.StepBuffers(0))
	Free(m.Backend, m.headBuffers(0))
	m.wanted = 0
}

func (m *Base) freeTerms() {
	m.Heads.Free()
	if m.DenseFFN != nil {
		m.DenseFFN.Free()
	}
}
