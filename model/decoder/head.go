package decoder

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// Head is the output head: the product of final hidden states with the vocabulary. In a
// group rank 0 gets the logits. It computes all of them, or every rank computes some rows
// of the vocabulary and rank 0 gathers them, in float32 so that they have the bits of one
// rank.
type Head struct {
	b      kernels.Backend
	vocab  int
	meter  *parallel.Meter
	group  *distributed.Group // nil unless the vocabulary is divided
	ranges []parallel.Range   // [Size] rows of each rank, likewise
	takes  bool
	gather *parallel.Combiner // likewise, after the first Reserve
	logits []float32          // [rows][vocab] on a rank that returns logits
	rows   int                // capacity of the two above
}

// NewHead makes the head of a vocabulary. It has no memory before Reserve.
func NewHead(b kernels.Backend, vocab int, meter *parallel.Meter) *Head {
	return &Head{b: b, vocab: vocab, meter: meter, takes: true}
}

// HeadBytes is the bytes that Reserve allocates for so many rows on rank 0 of a group;
// divided says whether the vocabulary is divided.
func HeadBytes(vocab, rows int, divided bool) int64 {
	n := 4 * int64(rows) * int64(vocab)
	if divided {
		n *= 2
	}
	return n
}

// Join makes ranges [Size] the rows of the vocabulary of each rank of a group, nil
// without a group. It frees the memory of Reserve.
func (h *Head) Join(g *distributed.Group, ranges []parallel.Range) {
	h.Free()
	h.group, h.ranges, h.takes = nil, nil, true
	switch {
	case g == nil:
	case ranges[0].Len() == h.vocab:
		h.takes = g.Rank() == 0
	default:
		h.group, h.ranges = g, slices.Clone(ranges)
	}
}

// Forgo makes this rank one that has no part in the logits.
func (h *Head) Forgo() {
	h.Free()
	h.group, h.ranges, h.takes = nil, nil, false
}

// Takes reports whether this rank has a part in the logits.
func (h *Head) Takes() bool { return h.takes }

// Reserve makes room for the logits of so many rows. Its error is the backend's.
func (h *Head) Reserve(rows int) error {
	if rows <= h.rows || !h.takes {
		return nil
	}
	h.Free()
	var err error
	if h.group == nil || h.group.Rank() == 0 {
		h.logits, err = kernels.MakeHost[float32](h.b, rows*h.vocab)
	}
	if err == nil && h.group != nil {
		h.gather, err = parallel.NewCombiner(h.b, h.group, parallel.Gather, parallel.F32, rows*h.vocab, h.meter.For(parallel.ForOutputHead))
	}
	if err != nil {
		h.Free()
		return err
	}
	h.rows = rows
	return nil
}

// Run multiplies x [rows][D] by w [vocab][D] and flushes. On rank 0 and without a group
// it returns the logits [rows][vocab], valid until the next Run, otherwise nothing. Its
// error is the backend's or the group's.
func (h *Head) Run(ctx context.Context, x []float32, rows int, w kernels.Weight) ([][]float32, error) {
	all := h.logits
	if h.group == nil {
		h.b.MatMul(x, rows, kernels.Product{W: w, Out: all})
	} else {
		counts := make([]int, len(h.ranges))
		for r, part := range h.ranges {
			counts[r] = rows * part.Len()
		}
		if own := h.ranges[h.group.Rank()]; own.Len() > 0 {
			h.b.MatMul(x, rows, kernels.Product{W: w.RowRange(own.Start, own.End), Out: h.gather.Parts()[rows*own.Start:]})
		}
		err := h.gather.Start(ctx, rows*h.vocab, counts)
		if err == nil {
			err = h.gather.Finish(ctx, h.gather.Parts(), h.vocab)
		}
		if err != nil {
			return nil, fmt.Errorf("output head: %w", err)
		}
	}
	if err := h.b.Flush(); err != nil {
		return nil, err
	}
	if h.group != nil {
		if h.group.Rank() != 0 {
			return nil, nil
		}
		if rows > 1 {
			h.sort(rows)
		} else {
			all = h.gather.Parts() // with one row the parts are in order
		}
	}
	out := make([][]float32, rows)
	for i := range out {
		out[i] = all[i*h.vocab : (i+1)*h.vocab : (i+1)*h.vocab]
	}
	return out, nil
}

// sort copies the parts of all ranks, each by row, to the rows of logits.
func (h *Head) sort(rows int) {
	parts := h.gather.Parts()
	for _, r := range h.ranges {
		for i := range rows {
			copy(h.logits[i*h.vocab+r.Start:], parts[rows*r.Start+i*r.Len():][:r.Len()])
		}
	}
}

// Free releases the memory; Reserve makes it again.
func (h *Head) Free() {
	if h.gather != nil {
		h.gather.Free()
	}
	kernels.Release(h.b, h.logits)
	h.gather, h.logits, h.rows = nil, nil, 0
}
