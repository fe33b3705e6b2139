package parallel

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/kernels"
)

// DivideRows returns the placement with steps of at least from rows divided by rows; 0 for
// none.
func (p Placement) DivideRows(from int) Placement {
	out := slices.Clone(p)
	for r := range out {
		out[r].Rows = from
	}
	return out
}

// DividesRows reports whether the rows of some steps are divided.
func (p Placement) DividesRows() bool { return len(p) > 1 && p[0].Rows > 0 }

// Cut divides the rows of a step among the ranks for the parts that the placement
// replicates, [ranks]: consecutive ranges in proportion to the weights, each of at least
// least rows, which must be positive. It is nil if such a step is not divided. All ranks
// get the same cut, because it follows from the placement and the step.
func (p Placement) Cut(rows, least int) []Range {
	if !p.DividesRows() || rows < max(p[0].Rows, least*len(p)) {
		return nil
	}
	out := make([]Range, len(p))
	if rest := rows - least*len(p); rest > 0 {
		weights := make([]float64, len(p))
		for r, x := range p {
			weights[r] = x.Weight
		}
		var err error
		if out, err = Divide(rest, weights); err != nil {
			return nil // Check refuses such weights
		}
	}
	for r := range out { // the rows that every rank has
		out[r] = Range{out[r].Start + least*r, out[r].End + least*(r+1)}
	}
	return out
}

// Field is a buffer with some numbers for each row of a step.
type Field struct {
	data []byte
	each int // bytes of a row
}

// FieldOf makes the field of x [rows][width].
func FieldOf[T float32 | int32](x []T, width int) Field {
	n := int(unsafe.Sizeof(x[0]))
	return Field{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), n*len(x)), n * width}
}

// RowGather gathers the rows of a step on all ranks of a group. Each rank has computed its
// own range, and all ranks get the same bits. One goroutine uses it. Between Start and
// Finish no other operation of its group may begin.
type RowGather struct {
	b     kernels.Backend
	meter Counter
	group *distributed.Group

	packed []byte // rows of several fields as they travel, rank by rank; set only during an exchange

	// Of the current exchange.
	pending distributed.Pending
	sizes   []int     // [Size] bytes of each rank's part
	rows    [][]int32 // [Size] rows of each rank if only some are gathered
	cut     []Range   // [Size] otherwise
	fields  []Field   // nil if they travel in place
}

// NewRowGather makes a gather without a group. meter counts its exchanges.
func NewRowGather(b kernels.Backend, meter Counter) *RowGather {
	return &RowGather{b: b, meter: meter}
}

// Join makes g the group, nil for none. The caller keeps the group.
func (g *RowGather) Join(group *distributed.Group) {
	g.group, g.sizes = group, nil
	g.packed = nil
	if group != nil {
		g.sizes = make([]int, group.Size())
	}
}

// Start flushes and starts to gather fields. This rank must have computed its rows
// cut[Rank] of them, in their places; the ranges of cut follow each other. One field travels
// in place; several are packed into one message. Until Finish no op may be encoded that uses
// other rows of them. An error comes from the backend; after a Start without an error, Finish
// must follow.
func (g *RowGather) Start(ctx context.Context, cut []Range, fields ...Field) error {
	if err := kernels.Reach(g.b); err != nil {
		return err
	}
	g.cut, g.rows, g.fields = cut, nil, nil
	if len(fields) == 1 {
		f, total := fields[0], 0
		for r, x := range cut {
			g.sizes[r] = f.each * x.Len()
			total += g.sizes[r]
		}
		g.pending = g.group.StartAllGatherV(ctx, f.data[f.each*cut[0].Start:][:total], g.sizes)
		return nil
	}
	g.start(ctx, fields)
	return nil
}

// Some flushes and gathers only the given rows [ascending] of the fields, and waits. An
// error comes from the backend or the group.
func (g *RowGather) Some(ctx context.Context, cut []Range, rows []int32, fields ...Field) error {
	if len(rows) == 0 {
		return nil
	}
	if err := kernels.Reach(g.b); err != nil {
		return err
	}
	g.cut, g.rows = cut, make([][]int32, len(cut))
	for r, x := range cut {
		from, _ := slices.BinarySearch(rows, int32(x.Start))
		to, _ := slices.BinarySearch(rows, int32(x.End))
		g.rows[r] = rows[from:to]
	}
	g.start(ctx, fields)
	return g.Finish()
}

// start packs this rank's rows of the fields and starts to gather them.
func (g *RowGather) start(ctx context.Context, fields []Field) {
	g.fields = fields
	each, total := 0, 0
	for _, f := range fields {
		each += f.each
	}
	for r, x := range g.cut {
		n := x.Len()
		if g.rows != nil {
			n = len(g.rows[r])
		}
		g.sizes[r] = each * n
		total += g.sizes[r]
	}
	g.packed = slices.Grow((g.packed)[:0], total)[:total]
	g.copy(g.group.Rank(), false)
	g.pending = g.group.StartAllGatherV(ctx, g.packed, g.sizes)
}

// copy copies the rows of a rank between the fields and packed.
func (g *RowGather) copy(rank int, unpack bool) {
	if !kernels.ValuesMatter(g.b) {
		return
	}
	packed, at := g.packed, 0
	for _, n := range g.sizes[:rank] {
		at += n
	}
	move := func(x []byte) {
		if unpack {
			copy(x, packed[at:])
		} else {
			copy(packed[at:], x)
		}
		at += len(x)
	}
	for _, f := range g.fields {
		if g.rows == nil {
			move(f.data[f.each*g.cut[rank].Start : f.each*g.cut[rank].End])
			continue
		}
		for _, row := range g.rows[rank] {
			move(f.data[f.each*int(row):][:f.each])
		}
	}
}

// FinishAnd is Finish, and then gathers more fields by the same cut. It flushes.
func (g *RowGather) FinishAnd(ctx context.Context, fields ...Field) error {
	if err := g.Finish(); err != nil {
		return err
	}
	if err := kernels.Reach(g.b); err != nil {
		return err
	}
	g.start(ctx, fields)
	return g.Finish()
}

// Finish waits until all rows are in their places. The error is the group's.
func (g *RowGather) Finish() error {
	if err := g.pending.Wait(); err != nil {
		return fmt.Errorf("rows of the step: %w", err)
	}
	for r := range g.sizes {
		if g.fields != nil && r != g.group.Rank() {
			g.copy(r, true)
		}
	}
	g.fields = nil
	g.meter.exchanged(AllGather, false)
	return nil
}
