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
// With Sum a rank adds its own terms in float32 and the ranks all-reduce the results. With Exact every term is rounded
// to float16 if it is in float16's range, and all are added by Sums, with or without a group, so that the result does
// not depend on how the terms are divided. Each time, the caller encodes ops that write into Mine, and calls Start and
// Finish.
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
	ranges []Range   // [Size] terms of each rank; nil if each has all
	c      *Combiner // Sum in a group
	sums   *Sums     // Exact
	mine   []float32 // [most][own][width] this rank's terms, Exact

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
	if how == Exact {
		var err error
		if t.sums, err = NewSums(b, s.Width, s.MaxTokens, meter); err != nil {
			return nil, err
		}
	}
	if err := t.allocate(); err != nil {
		t.Free()
		return nil, err
	}
	return t, nil
}

// Bytes returns the bytes that NewTerms allocates.
func (s TermsShape) Bytes(how Reduce) int64 {
	if how == Sum {
		return 0
	}
	return SumsBytes(s.Width, s.MaxTokens) + 4*int64(s.MaxTokens*s.Width*s.Terms)
}

// JoinBytes returns the bytes that Join allocates on a rank with some of the terms, less those that it frees.
func (s TermsShape) JoinBytes(how Reduce, wire Wire, rank int, ranges []Range, cut bool) int64 {
	n := s.MaxTokens * s.Width
	if how == Sum {
		return CombinerBytes(SumOp(cut), wire, n)
	}
	return SumsJoinBytes(s.Width, s.MaxTokens, len(ranges), cut) - 4*int64(n*(s.Terms-ranges[rank].Len()))
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
		g, ranges = nil, nil
	} else if err := CheckDivision("terms", t.terms, g.Size(), ranges); err != nil {
		return err
	}
	t.leave()
	if t.ranges = slices.Clone(ranges); g != nil {
		t.rank = g.Rank()
	}
	if err := t.allocate(); err != nil {
		return err
	}
	var err error
	if t.reduce == Exact {
		err = t.sums.Join(g, cut)
	} else if g != nil {
		t.c, err = NewCombiner(t.b, g, SumOp(cut), wire, t.most*t.width, t.meter)
	}
	return err
}

// allocate allocates this rank's terms.
func (t *Terms) allocate() error {
	if t.reduce != Exact {
		return nil
	}
	var err error
	if t.mine, err = kernels.Make[float32](t.b, t.most*t.Own().Len()*t.width); err != nil {
		return fmt.Errorf("memory of the terms: %w", err)
	}
	return nil
}

// leave frees what depends on the group.
func (t *Terms) leave() {
	if t.c != nil {
		t.c.Free()
	}
	kernels.Release(t.b, t.mine)
	t.c, t.ranges, t.rank, t.mine = nil, nil, 0, nil
}

// Free releases the memory. The caller keeps the group.
func (t *Terms) Free() {
	t.leave()
	if t.sums != nil {
		t.sums.Free()
	}
}

// Own returns the terms that this rank computes.
func (t *Terms) Own() Range {
	if t.ranges == nil {
		return Range{0, t.terms}
	}
	return t.ranges[t.rank]
}

// Divided reports whether the terms are divided among ranks, and Start and Finish
// exchange them.
func (t *Terms) Divided() bool { return t.ranges != nil }

// Separate reports whether the caller must write every term rather than the sum of its terms.
func (t *Terms) Separate() bool { return t.reduce == Exact }

// Mine returns the memory into which a rank writes its terms before Start: with Exact [rows][own][width], with Sum
// their sums [rows][width]. A rank without terms writes nothing. out is the argument that Finish will get; if nothing
// has to be added, Mine returns it, so that the terms are written there directly.
func (t *Terms) Mine(out []float32) []float32 {
	switch {
	case t.reduce == Exact:
		return t.mine
	case t.c == nil:
		return out
	}
	return t.c.Parts()
}

// Start starts the exchange, before which it flushes; without a group it flushes nothing. cut [Size] says which rows
// each rank needs, nil if every rank needs all. After a Start without an error Finish must follow. An error comes from
// the backend or the group.
func (t *Terms) Start(ctx context.Context, rows int, cut []Range) error {
	t.rows, t.cut = rows, cut
	own := t.Own().Len()
	if t.reduce == Exact {
		if own > 0 {
			t.sums.Set(t.mine, rows, own)
		} else {
			t.sums.SetZero()
		}
		if t.ranges == nil {
			return nil
		}
		return t.sums.Start(ctx, rows, cut)
	}
	if t.c == nil {
		return nil
	}
	if own == 0 {
		t.b.Clear(t.c.Parts(), rows*t.width)
	}
	if cut == nil {
		return t.c.StartAll(ctx, rows*t.width)
	}
	return t.c.Start(ctx, rows*t.width, Counts(cut, t.width))
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
// error comes from the group or the backend.
func (t *Terms) Finish(ctx context.Context, out []float32) error {
	if t.reduce != Exact {
		if t.c == nil {
			return nil // Mine was out
		}
		return t.c.Finish(ctx, out, t.width)
	}
	rows := t.rows
	if t.ranges != nil {
		if err := t.sums.Finish(ctx); err != nil {
			return err
		}
		if t.cut != nil {
			rows = t.cut[t.rank].Len()
		}
	}
	t.sums.Round(out, rows)
	return nil
}
