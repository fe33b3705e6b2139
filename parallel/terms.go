package parallel

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/kernels"
)

// Terms adds the terms of sums that are divided among the ranks of a group, such as the outputs of groups of attention
// heads. Every row of a step is a sum of the same number of terms, each with width numbers, and each rank computes a
// range of them.
//
// With Sum a rank adds its own terms and the ranks all-reduce the results. With Exact every term is kept, rounded to
// float16 if it is in float16's range, and all are added in their order, with or without a group, so that the result
// does not depend on how the terms are divided. Each time, the caller encodes ops that write into Mine, and calls
// Start and Finish.
//
// One goroutine uses it.
type Terms struct {
	b      kernels.Backend
	reduce Reduce
	meter  Counter
	terms  int // of a sum
	width  int
	most   int // rows of a step

	rank   int
	ranges []Range   // [Size] terms of each rank
	c      *Combiner // nil without a group
	alone  []float32 // [most][terms][width] all terms, Exact without a group
	sorted []float32 // [most][terms][width] terms by row, Exact in a group
	place  []int32   // [most*terms] where each term of each row has arrived, likewise
	placed int       // rows that place is for

	rows int     // of the Start that waits for its Finish
	cut  []Range // [Size] the rows that each rank needs, nil if all
}

// TermsShape has the sizes that the memory of Terms depends on.
type TermsShape struct {
	Terms     int // of a sum
	Width     int // numbers of a row
	MaxTokens int // most rows of a Start
}

// NewTerms allocates what a rank without a group needs. An error comes from the backend and means that memory has run
// out.
func NewTerms(b kernels.Backend, how Reduce, s TermsShape, meter Counter) (*Terms, error) {
	t := &Terms{b: b, reduce: how, meter: meter, terms: s.Terms, width: s.Width, most: s.MaxTokens}
	return t, t.leave()
}

// Bytes returns the bytes that NewTerms allocates, and those that Join allocates in their place for a group that
// divides the terms and, if cut is set, the rows of some steps.
func (s TermsShape) Bytes(how Reduce, wire Wire, cut bool) (alone, joined int64) {
	n := s.MaxTokens * s.Width
	if how == Sum {
		return 0, CombinerBytes(SumOp(cut), wire, n)
	}
	n *= s.Terms
	return 4 * int64(n), CombinerBytes(AllGather, wire, n) + 4*int64(n) + 4*int64(s.MaxTokens*s.Terms)
}

// SumOp returns the collective for sums. If cut is set, some steps need each row on only one rank; all other steps
// need every row on every rank.
func SumOp(cut bool) Op {
	if cut {
		return ReduceScatter
	}
	return AllReduce
}

// Join makes ranges [Size] the terms of each rank of a group. All ranks must join with the same arguments; cut says
// whether some Starts have a cut. Join may be called again between steps, with another group, or with nil for none; a
// group in which every rank has all terms is like none. After an error Terms must not be used before another Join; the
// error comes from the backend.
func (t *Terms) Join(g *distributed.Group, ranges []Range, wire Wire, cut bool) error {
	if g == nil || Replicated(t.terms, ranges) {
		t.Free()
		return t.leave()
	}
	if err := CheckDivision("terms", t.terms, g.Size(), ranges); err != nil {
		return err
	}
	t.Free()
	op, n := SumOp(cut), t.most*t.width
	if t.reduce == Exact {
		op, n = AllGather, n*t.terms
	}
	var err error
	if t.c, err = NewCombiner(t.b, g, op, wire, n, t.meter); err != nil {
		return err
	}
	t.rank, t.ranges = g.Rank(), slices.Clone(ranges)
	if t.reduce == Exact {
		t.sorted, err = kernels.Make[float32](t.b, n)
		if err == nil {
			t.place, err = kernels.Make[int32](t.b, t.most*t.terms)
		}
	}
	if err != nil {
		t.Free()
		return fmt.Errorf("memory of the terms: %w", err)
	}
	return nil
}

// leave allocates what a rank without a group needs.
func (t *Terms) leave() error {
	if t.reduce != Exact {
		return nil
	}
	var err error
	if t.alone, err = kernels.Make[float32](t.b, t.most*t.terms*t.width); err != nil {
		return fmt.Errorf("memory of the terms: %w", err)
	}
	return nil
}

// Free releases the memory. The caller keeps the group.
func (t *Terms) Free() {
	if t.c != nil {
		t.c.Free()
	}
	kernels.Release(t.b, t.alone)
	kernels.Release(t.b, t.sorted)
	kernels.Release(t.b, t.place)
	t.c, t.ranges, t.rank, t.alone, t.sorted, t.place, t.placed = nil, nil, 0, nil, nil, nil, 0
}

// Own returns the terms that this rank computes.
func (t *Terms) Own() Range {
	if t.c == nil {
		return Range{0, t.terms}
	}
	return t.ranges[t.rank]
}

// Divided reports whether the terms are divided among ranks, and Start and Finish
// exchange them.
func (t *Terms) Divided() bool { return t.c != nil }

// Separate reports whether the caller must write every term rather than the sum of its terms.
func (t *Terms) Separate() bool { return t.reduce == Exact }

// Mine returns the memory into which a rank writes its terms before Start: with Exact [rows][own][width], with Sum
// their sums [rows][width]. A rank without terms writes nothing. out is the argument that Finish will get; if nothing
// has to be added, Mine returns it, so that the terms are written there directly.
func (t *Terms) Mine(out []float32, rows int) []float32 {
	switch {
	case t.c == nil && t.reduce == Exact:
		return t.alone
	case t.c == nil:
		return out
	case t.reduce == Exact:
		return t.c.Parts()[rows*t.Own().Start*t.width:]
	}
	return t.c.Parts()
}

// Start flushes and starts the exchange; without a group it does nothing. cut [Size] says which rows each rank needs,
// nil if every rank needs all. After a Start without an error Finish must follow. An error comes from the backend or
// the group.
func (t *Terms) Start(ctx context.Context, rows int, cut []Range) error {
	t.rows, t.cut = rows, cut
	if t.c == nil {
		return nil
	}
	if t.reduce != Exact {
		if t.Own().Len() == 0 {
			t.b.Clear(t.c.Parts(), rows*t.width)
		}
		if cut == nil {
			return t.c.StartAll(ctx, rows*t.width)
		}
		return t.c.Start(ctx, rows*t.width, Counts(cut, t.width))
	}
	counts := make([]int, len(t.ranges))
	for r, x := range t.ranges {
		counts[r] = rows * x.Len() * t.width
	}
	if err := t.sort(rows); err != nil {
		return err
	}
	return t.c.Start(ctx, rows*t.terms*t.width, counts)
}

// sort fills place for a number of rows, because the terms of a rank arrive by row. An error comes from the backend.
func (t *Terms) sort(rows int) error {
	if t.placed == rows {
		return nil
	}
	if err := t.b.Flush(); err != nil { // an op may still read it
		return err
	}
	for _, x := range t.ranges {
		for row := range rows {
			for k := x.Start; k < x.End; k++ {
				t.place[row*t.terms+k] = int32(rows*x.Start + row*x.Len() + k - x.Start)
			}
		}
	}
	t.placed = rows
	return nil
}

// Counts returns how many numbers each rank's rows of width have.
func Counts(cut []Range, width int) []int {
	counts := make([]int, len(cut))
	for r, x := range cut {
		counts[r] = x.Len() * width
	}
	return counts
}

// Finish waits for the exchange and encodes the ops that leave the sums of this rank's rows in out [rows][width]. An
// error comes from the group.
func (t *Terms) Finish(ctx context.Context, out []float32) error {
	switch {
	case t.c == nil && t.reduce == Exact:
		t.b.SumSlots(out, t.alone, t.rows, t.terms, t.width, true)
		return nil
	case t.c == nil:
		return nil // Mine was out
	case t.reduce != Exact:
		return t.c.Finish(ctx, out, t.width)
	}
	if err := t.c.Finish(ctx, t.c.Parts(), t.width); err != nil {
		return err
	}
	terms, own := t.c.Parts(), Range{0, t.rows}
	if t.cut != nil {
		own = t.cut[t.rank]
	}
	if t.rows > 1 {
		t.b.Gather(t.sorted, terms[:t.rows*t.terms*t.width], t.place[own.Start*t.terms:own.End*t.terms], t.width)
		terms = t.sorted
	}
	t.b.SumSlots(out, terms, own.Len(), t.terms, t.width, true)
	return nil
}
