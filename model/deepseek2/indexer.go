package deepseek2

import (
	"context"
	"fmt"
	"math"
	"strings"

	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// Sparse attention. In a layer with an indexer every position leaves a key of its own,
// beside its latent row. A token's index queries score all keys so far, and attention
// reads the latent rows of the TopK positions with the largest scores. A layer without an
// indexer reads those that the last layer with one chose. While a token sees no more than
// TopK positions, attention reads all of them and nothing is scored.

// Index is the shape of the indexer.
type Index struct {
	TopK   int    // positions that a token reads; 0: all, there is no indexer
	Heads  int    // of the index queries
	Dim    int    // of a head and of a position's key; a power of two
	Full   []bool // [Layers] the layers that have one; the first does
	Halves bool   // RoPE pairs elements of two halves; else neighbours
}

// knownOfIndex are the keys of the architectures with an indexer that others lack.
var knownOfIndex = strings.Fields(`
	attention.indexer.head_count attention.indexer.key_length attention.indexer.top_k attention.indexer.types`)

// indexEps is the epsilon of the LayerNorm of the keys, which files do not say.
const indexEps = 1e-6

// longGLM is the context from which files of glm-dsa that do not list the layers with an
// indexer have one in the first three and in each fourth after them (GLM-5.2). In others
// (GLM-5, 5.1, V3.2) all layers have one.
const longGLM = 1 << 20

// readIndex reads the shape of the indexer.
func (c *Config) readIndex(r *decoder.Keys) {
	const types = "attention.indexer.types"
	x := &c.Index
	x.TopK = r.Number("attention.indexer.top_k", 1, 1<<20)
	x.Heads = r.Number("attention.indexer.head_count", 1, 65536)
	x.Dim = r.Number("attention.indexer.key_length", 2, 65536)
	x.Halves = c.Arch == archV32
	if x.Dim&(x.Dim-1) != 0 || x.Dim < c.RotDim {
		r.Fail("key %q is %d; expected a power of two, for the Hadamard transform, of at least the %d rotated elements",
			r.Name("attention.indexer.key_length"), x.Dim, c.RotDim)
	}
	if c.QRank == 0 {
		r.Fail("tensor %q: the indexer takes its queries from a low rank, which this file's attention lacks", "blk.0.attn_q.weight")
	}
	x.Full = make([]bool, c.Layers)
	if !r.Has(types) {
		for i := range x.Full {
			x.Full[i] = c.Arch == archV32 || c.Context < longGLM || i < 3 || i%4 == 2
		}
		return
	}
	full, ok := r.File.Bools(r.Name(types))
	switch {
	case !ok || len(full) < c.Layers: // there may be more, of blocks for multi-token prediction
		r.Fail("key %q must have a boolean for each of the %d layers", r.Name(types), c.Layers)
	case !full[0]:
		r.Fail("key %q: the first layer needs an indexer, because no earlier layer chooses positions for it", r.Name(types))
	default:
		copy(x.Full, full)
	}
}

// layers is the number of layers with an indexer.
func (x *Index) layers() (n int) {
	for _, has := range x.Full {
		if has {
			n++
		}
	}
	return n
}

// has reports whether a layer has an indexer.
func (x *Index) has(layer int) bool { return x.TopK > 0 && x.Full[layer] }

// chooses reports whether a token of a segment that ends before position end sees more
// positions than attention reads.
func (x *Index) chooses(end int) bool { return x.TopK > 0 && end > x.TopK }

// indexer holds the weights of a layer's indexer.
type indexer struct {
	qB       kernels.Weight // [Heads*Dim][QRank]
	key      kernels.Weight // [Dim][D]
	norm     []float32      // [Dim] of the keys
	normBias []float32      // [Dim]
	weight   kernels.Weight // [Heads][D] of the heads' scores
}

// indexerTensors are the tensors of a layer's indexer.
var indexerTensors = []string{"indexer.attn_q_b.weight", "indexer.attn_k.weight", "indexer.k_norm.weight", "indexer.k_norm.bias", "indexer.proj.weight"}

// loadIndexer finds the tensors of a layer's indexer; their names begin with prefix. A
// layer without one gets nil, whether or not the file has tensors for it, because some
// files of GLM-5.2 have unused ones.
func loadIndexer(l *decoder.Loader, c *Config, layer int, prefix string) *indexer {
	x, p := &c.Index, prefix+"indexer."
	if !x.has(layer) {
		return nil
	}
	return &indexer{
		qB:       l.Matrix(p+"attn_q_b.weight", c.QRank, x.Heads*x.Dim, 1),
		key:      l.Matrix(p+"attn_k.weight", c.Embd, x.Dim, 1),
		norm:     l.Vector(p+"k_norm.weight", x.Dim),
		normBias: l.Vector(p+"k_norm.bias", x.Dim),
		weight:   l.Matrix(p+"proj.weight", c.Embd, x.Heads, 1),
	}
}

// chooses reports whether the indexer of a layer has work in a step.
func (m *forward) chooses(l *layer, step step) bool {
	return l.index != nil && m.c.Index.chooses(step.End)
}

// turnIndex rotates index queries or keys of this rank's rows, x [rows][heads][Dim], and
// spreads them with the Hadamard transform. The transform keeps products of queries and
// keys, and is applied because rounding keys loses more if some elements stand out.
func (m *forward) turnIndex(x []float32, heads int, step step) {
	c, own := m.c, step.Own
	m.Backend.RoPE(kernels.RoPEArgs{X: x, Pos: step.Pos[own.Start:own.End], Freqs: m.w.freqs, Rows: own.Len(), Heads: heads,
		HeadDim: c.Index.Dim, RotDim: c.RotDim, Front: true, Halves: c.Index.Halves, Magnitude: c.Turn})
	m.Backend.Hadamard(x, own.Len()*heads, c.Index.Dim)
}

// indexKeys makes the keys of this rank's rows from their projections.
func (m *forward) indexKeys(l *layer, step step) {
	dim, own := m.c.Index.Dim, step.Own
	keys := m.scratch.indexKey[own.Start*dim:]
	m.Backend.LayerNorm(keys, keys, l.index.norm, l.index.normBias, own.Len(), dim, indexEps)
	m.turnIndex(keys, 1, step)
}

// choose encodes the selection of positions for each token of the segments that see too
// many. If rows are divided it selects for this rank's rows, and gathers the selection if
// the heads need all rows. The selection stays for the following layers without an
// indexer. The error is the group's.
func (m *forward) choose(ctx context.Context, l *layer, number int, step step, attends bool) error {
	if !attends && step.Cut == nil {
		return nil
	}
	c, x, s, own := m.c, &m.c.Index, &m.scratch, step.Own
	q := s.indexQ[own.Start*x.Heads*x.Dim:]
	m.Backend.MatMul(s.qr[own.Start*c.QRank:], own.Len(), kernels.Product{W: l.index.qB, Out: q})
	m.turnIndex(q, x.Heads, step)
	for _, whole := range step.Segments {
		g, ok := whole.Part(own)
		if !ok || !x.chooses(whole.Pos+whole.N) {
			continue
		}
		m.Backend.IndexTopK(kernels.IndexArgs{
			Q: s.indexQ[g.First*x.Heads*x.Dim:], HeadWeight: s.indexWeight[g.First*x.Heads:],
			Cache: g.Cache.keys[number], Selected: s.selected[g.First*x.TopK:],
			Rows: g.N, Pos: g.Pos, Heads: x.Heads, Dim: x.Dim, TopK: x.TopK, Ratio: 1,
			Scale: float32(1 / math.Sqrt(float64(x.Heads)*float64(x.Dim))),
		})
	}
	if !m.Heads.Divided() {
		return nil
	}
	return m.GatherRows(ctx, step.Cut, parallel.FieldOf(s.selected, x.TopK))
}

// summary says in a few words what attention reads.
func (x *Index) summary() string {
	if x.TopK == 0 {
		return ""
	}
	return fmt.Sprintf(", %d positions chosen by indexers of %d layers", x.TopK, x.layers())
}
