package decoder

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// Between steps, a rank's weights and its products with them are examined in pieces. Two
// ranks that examine the same part must find the same, bit for bit.

// blockBytes is the most bytes of a block of rows, unless one row is longer.
const blockBytes = 16 << 20

// block is some rows of a tensor that is not a stack of experts.
type block struct {
	t           gguf.Tensor
	layer       int
	first, rows int // of its matrix; 0 rows: the whole tensor, which is no matrix
}

// blocksOf divides the tensors of a model, except the stacks of experts, into blocks.
func blocksOf(tensors []gguf.Tensor, layers func(i int) *moe.Layer, count int) (out []block) {
	stacks := map[string]bool{}
	for i := range count {
		if l := layers(i); l != nil {
			for _, w := range l.Stacks() {
				stacks[w.Name] = true
			}
		}
	}
	for _, t := range tensors {
		if stacks[t.Name] {
			continue
		}
		layer, _ := split(t.Name)
		if len(t.Shape) != 2 {
			out = append(out, block{t: t, layer: layer})
			continue
		}
		rows, each := int(t.Shape[1]), max(1, blockBytes/max(1, len(t.Data)/max(1, int(t.Shape[1]))))
		for first := 0; first < rows; first += each {
			out = append(out, block{t, layer, first, min(each, rows-first)})
		}
	}
	return out
}

// Extent is what Examine can examine.
func (m *Model[C]) Extent() model.Extent {
	e := model.Extent{Experts: m.o.Sizes.Experts, Blocks: len(m.blocks())}
	for i := range m.o.Layers {
		if m.network.Experts(i) != nil {
			e.Layers = append(e.Layers, i)
		}
	}
	return e
}

// blocks are those of blocksOf, made when they are first needed.
func (m *Model[C]) blocks() []block {
	if m.examined == nil {
		m.examined = blocksOf(m.o.Tensors, m.network.Experts, m.o.Layers)
	}
	return m.examined
}

// Examine computes the sums of a piece of the model, whatever the placement. It must not
// run during a step. The error says what of the piece is wrong, or is the backend's.
func (m *Model[C]) Examine(p model.Piece) ([]model.Sum, error) {
	most := len(m.blocks())
	var l *moe.Layer
	if p.Layer >= 0 && p.Layer < m.o.Layers {
		l, most = m.network.Experts(p.Layer), m.o.Sizes.Experts
	}
	if p.Layer < -1 || p.Layer >= m.o.Layers || p.Layer >= 0 && l == nil || p.From < 0 || p.From > p.To || p.To > most || p.To-p.From > model.MostPiece {
		return nil, m.errorf("%d to %d of layer %d cannot be examined", p.From, p.To, p.Layer)
	}
	if l == nil {
		return m.examineBlocks(m.blocks()[p.From:p.To], p.Seed)
	}
	var out []model.Sum
	for from := p.From; from < p.To; from += m.o.Info.MaxTokens { // as many as there is room for
		sums, err := m.examineExperts(l, p.Layer, parallel.Range{Start: from, End: min(from+m.o.Info.MaxTokens, p.To)}, p.Seed)
		if err != nil {
			return nil, err
		}
		out = append(out, sums...)
	}
	return out, nil
}

// examineExperts is Examine for routed experts.
func (m *Model[C]) examineExperts(l *moe.Layer, layer int, experts parallel.Range, seed uint64) ([]model.Sum, error) {
	b, width := m.o.Backend, l.Gate.Cols
	x, err := m.seeded(m.o.Routed.OutputRows(experts.Len())*width, seed, uint64(layer)<<32)
	if err != nil {
		return nil, err
	}
	defer kernels.Release(b, x)
	for at := width; at < len(x); at += width { // one row for all, so that pieces do not matter
		copy(x[at:], x[:width])
	}
	outs, err := m.o.Routed.Outputs(l, x, experts)
	if err != nil {
		return nil, m.errorf("layer %d: experts %v: %w", layer, experts, err)
	}
	var sums []model.Sum
	for i := range experts.Len() {
		e := experts.Start + i
		for j, w := range l.Stacks() {
			name := w.Name
			if j == 1 && name == l.Gate.Name {
				name += " (up)" // gate and up in one tensor
			}
			sums = append(sums, model.Sum{Name: name, Layer: layer, Expert: e, Weights: matrixSum(w.SliceRange(e, e+1))})
		}
		sums = append(sums, model.Sum{Name: model.ExpertOutput, Layer: layer, Expert: e, Result: resultSum(outs[i*width : (i+1)*width])})
	}
	return sums, nil
}

// matrixSum is the checksum of a matrix, row by row, because rows may lie apart.
func matrixSum(w kernels.Weight) (sum uint32) {
	if w.Stride() == w.RowBytes() {
		return crc32.Checksum(w.Data[:w.MatrixBytes()], castagnoli)
	}
	for r := range w.Rows {
		sum = crc32.Update(sum, castagnoli, w.Data[r*w.Stride():][:w.RowBytes()])
	}
	return sum
}

// resultSum is the checksum of a row of results.
func resultSum(row []float32) uint32 {
	row = quietNaNs(row)
	return crc32.Checksum(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 4*len(row)), castagnoli)
}

// examineBlocks is Examine for all tensors that are not stacks of experts.
func (m *Model[C]) examineBlocks(blocks []block, seed uint64) ([]model.Sum, error) {
	b := m.o.Backend
	var sums []model.Sum
	for _, k := range blocks {
		s := model.Sum{Name: k.t.Name, Layer: k.layer, Expert: -1, First: k.first, Rows: k.rows, Weights: crc32.Checksum(k.t.Data, castagnoli)}
		if k.rows > 0 {
			w := kernels.Weight{Name: k.t.Name, Type: k.t.Type, Cols: int(k.t.Shape[0]), Rows: int(k.t.Shape[1]), Slices: 1, Data: k.t.Data}
			if int64(w.Rows) != k.t.Shape[1] || w.Rows*w.RowBytes() != len(k.t.Data) {
				return nil, m.errorf("tensor %q has %d bytes, which do not fit the shape %v", k.t.Name, len(k.t.Data), k.t.Shape)
			}
			w.SliceBytes = w.Rows * w.RowBytes()
			part := w.RowRange(k.first, k.first+k.rows)
			s.Weights = crc32.Checksum(k.t.Data[k.first*w.RowBytes():][:k.rows*w.RowBytes()], castagnoli)
			if b.CanCompute(w.Type) {
				var err error
				if s.Result, err = m.product(part, seed); err != nil {
					return nil, m.errorf("tensor %q, rows %d to %d: %w", k.t.Name, k.first, k.first+k.rows, err)
				}
			}
		}
		sums = append(sums, s)
	}
	return sums, nil
}

// product is the checksum of the product of a matrix with a seeded row.
func (m *Model[C]) product(w kernels.Weight, seed uint64) (uint32, error) {
	b := m.o.Backend
	x, err := m.seeded(w.Cols, seed, uint64(crc32.ChecksumIEEE([]byte(w.Name))))
	if err != nil {
		return 0, err
	}
	defer kernels.Release(b, x)
	out, err := kernels.MakeHost[float32](b, w.Rows)
	if err != nil {
		return 0, err
	}
	defer kernels.Release(b, out)
	b.MatMul(x, 1, kernels.Product{W: w, Out: out})
	if err := b.Flush(); err != nil {
		return 0, err
	}
	return resultSum(out), nil
}

// seeded is n numbers from -1 to 1 in memory of the backend, which the caller releases.
func (m *Model[C]) seeded(n int, seed, stream uint64) ([]float32, error) {
	x, err := kernels.Make[float32](m.o.Backend, n)
	if err != nil {
		return nil, fmt.Errorf("input of %d numbers: %w", n, err)
	}
	r := rand.New(rand.NewPCG(seed, stream))
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x, nil
}
