// Package hyper is what the architectures with hyper-connections share (deepseek4,
// deepseek41): a residual of several streams, attention of many heads over one key/value row
// of a sliding window and compressed entries, a low-rank output in groups, and the rings of a
// sequence's KV cache. An architecture embeds a Pass in its forward pass:
//
//	type forward struct {
//		hyper.Pass
//		...
//	}
//	m.Mix(&l.hcAttn, nil, s.Pre, s.Pre, l.attnNorm, step.Own) // the input of a sub-layer
package hyper

import (
	"math"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// Shape is the sizes that weights, buffers and ops depend on.
type Shape struct {
	Embd    int // D, hidden size
	Heads   int // H, query heads; there is one key/value head
	HeadDim int // hd, width of a head and of a key/value row
	RotDim  int // rotated elements at the end of a head
	QRank   int // low rank of the query projection
	ORank   int // low rank of the output projection, per group
	OGroups int // groups of heads in the output projection
	Window  int // positions of the sliding window, the current one included

	Streams  int     // S, hyper-connection streams
	Sinkhorn int     // Sinkhorn iterations of a hyper-connection
	HCEps    float32 // epsilon of the Sinkhorn iterations
	RMSEps   float32
}

// MaxStreams bounds Streams, because the kernels keep S*S coefficients of a token on the
// stack.
const MaxStreams = 8

// Check reports sizes that do not fit together.
func (s *Shape) Check(r *decoder.Keys) {
	if s.RotDim > s.HeadDim || s.RotDim%2 != 0 {
		r.Fail("rope.dimension_count is %d; expected an even number up to the head's %d", s.RotDim, s.HeadDim)
	}
	if s.Heads%s.OGroups != 0 {
		r.Fail("%d heads do not divide into %d output groups", s.Heads, s.OGroups)
	}
}

// Divisions are the matrices that a rank may read in part.
func Divisions() map[string]decoder.Division {
	return decoder.Divisions([]string{"attn_q_b.weight", "attn_output_a.weight"}, []string{"attn_output_b.weight"}, false)
}

// Sizes is what a placement divides. oB and sharedDown are the types of the matrices that are
// divided by columns, one for each layer, because columns can be cut only between blocks.
func (s *Shape) Sizes(experts, vocab, sharedFF int, oB, sharedDown []gguf.Type) parallel.Sizes {
	return parallel.Sizes{
		Experts: experts, Vocabulary: vocab,
		Heads:  decoder.ColumnParts(s.OGroups*s.ORank, s.OGroups, oB),
		Shared: decoder.ColumnParts(sharedFF, decoder.MostParts, sharedDown),
	}
}

// Scale is the factor of the products of queries and keys.
func (s *Shape) Scale() float32 { return float32(1 / math.Sqrt(float64(s.HeadDim))) }

// Pass is what the forward passes have in common.
type Pass struct {
	decoder.Base
	Shape *Shape
	Scratch
}

// Mix encodes the coefficients of a hyper-connection for some rows of H: pre, the weights of
// the streams, and Post and Comb. Then it collapses the streams with collapse, which may be
// pre, to the normalised input of the sub-layer, X. With y, the output [rows][D] of the sub-layer
// before, it expands the streams first, by Post and Comb as they are before.
func (m *Pass) Mix(hc *Connection, y, pre, collapse, norm []float32, rows parallel.Range) {
	c, n := m.Shape, rows.Len()
	h, x := m.H[rows.Start*c.Streams*c.Embd:], m.X[rows.Start*c.Embd:]
	m.Backend.HCMix(kernels.HCMixArgs{
		H: h, Y: y, Fn: hc.Fn, Base: hc.Base, Scale: hc.Scale,
		Weights: collapse, Norm: norm,
		Pre: pre, Post: m.Post, Comb: m.Comb, X: x,
		Rows: n, Streams: c.Streams, Cols: c.Embd,
		Iterations: c.Sinkhorn, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
}

// Local is what a rank computes of the attention of a layer: some groups of heads.
type Local struct {
	Heads  int            // of them
	groups int            // of the output projection
	qB     kernels.Weight // [heads*hd][QRank]
	sinks  []float32      // [heads]
	oA     kernels.Weight // groups x [ORank][H*hd/OGroups]
	freqs  []float32      // [RotDim/2]
	pos    []int32        // of the rows that attend
	rotate bool           // Attend rotates the queries
	norm   bool           // and norms them
}

// local is this rank's part of a layer, which must not be empty.
func (m *Pass) local(a *Attention) Local {
	c, own, parts := m.Shape, m.Base.Heads.Own(), m.Sizes.Heads
	first, heads := own.Start*c.Heads/parts, own.Len()*c.Heads/parts
	return Local{
		Heads: heads, groups: own.Len() * c.OGroups / parts,
		qB:    a.QB.RowRange(first*c.HeadDim, (first+heads)*c.HeadDim),
		sinks: a.Sinks[first : first+heads],
		oA:    a.OA.RowGroups(c.OGroups).SliceRange(own.Start*c.OGroups/parts, own.End*c.OGroups/parts),
	}
}

// NormsQueries reports whether Queries of some rows norms them in QR: where nothing else reads these,
// neither a rank that gathers them nor a product of the indexer's alone.
func NormsQueries(rows, own parallel.Range, cut []parallel.Range) bool {
	return cut == nil && rows == own
}

// NormQuery encodes the norm of own rows of QR, for which Queries does not.
func (m *Pass) NormQuery(a *Attention, own parallel.Range) {
	c := m.Shape
	qr := m.QR[own.Start*c.QRank:]
	m.Backend.RMSNorm(qr, qr, a.QANorm, own.Len(), c.QRank, c.RMSEps)
}

// Queries encodes the product of the queries of this rank's heads of some rows of a step, and
// beside it the indexer's, nil for none, of the rows own, if these are the same. It reports
// whether it has encoded the indexer's. With norm it norms the rows of QR first: see NormsQueries.
func (m *Pass) Queries(a *Attention, rows parallel.Range, indexer *kernels.Product, own parallel.Range, norm bool) (both bool) {
	var products []kernels.Product
	if both = indexer != nil && rows == own; both {
		products = append(products, *indexer) // first, because more ops wait for it
	}
	products = append(products, kernels.Product{W: m.local(a).qB, Out: m.Q})
	qr, n := m.QR[rows.Start*m.Shape.QRank:], rows.Len()
	if norm {
		m.Backend.NormMatMul(qr, a.QANorm, m.Shape.RMSEps, n, products...)
	} else {
		m.Backend.MatMul(qr, n, products...)
	}
	return both
}

// HeadsOf encodes the attention of this rank's heads of some rows of a step from their Queries
// on, up to their outputs in y, which has this rank's rows. pos [step] are the positions. normed
// says that each head's query is normed. attend encodes the attention itself, of the given number of
// segments: that of one rotates the queries.
func (m *Pass) HeadsOf(a *Attention, freqs []float32, rows parallel.Range, pos []int32, normed bool, y []float32, segments int, attend func(own *Local)) {
	b, c, n := m.Backend, m.Shape, rows.Len()
	own := m.local(a)
	own.freqs, own.pos = freqs, pos[rows.Start:rows.End]
	if own.rotate, own.norm = segments == 1, normed && segments == 1; !own.rotate {
		b.RoPE(kernels.RoPEArgs{X: m.Q, Pos: own.pos, Freqs: freqs, Rows: n, Heads: own.Heads, HeadDim: c.HeadDim, RotDim: c.RotDim, Norm: normed, Eps: c.RMSEps})
	}
	attend(&own)
	b.MatMulGrouped(m.Low, m.Attn, n, own.oA)
	m.OutputOfHeads(a.OB, m.Low, y, n)
}

// Windowed is the attention of n tokens of a sequence from position pos for this rank's heads
// over the window alone. Their queries begin at row first of Q.
func (m *Pass) Windowed(own *Local, raw []uint16, first, n, pos int) kernels.AttendArgs {
	c := m.Shape
	at := first * own.Heads * c.HeadDim
	return kernels.AttendArgs{
		Q: m.Q[at:], Out: m.Attn[at:],
		Raw: raw, Sinks: own.sinks,
		Rows: n, Pos: pos, Heads: own.Heads, HeadDim: c.HeadDim, ValueDim: c.HeadDim,
		Freqs: own.freqs, Positions: own.pos[first:], RotDim: c.RotDim,
		RotateQ: own.rotate, NormQ: own.norm, Eps: c.RMSEps,
		Window: c.Window, RingRows: c.RawRows(m.MaxTokens),
		Scale: c.Scale(),
	}
}
