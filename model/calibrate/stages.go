package calibrate

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// Pipeline lists what the stages of a placement do with the work. Steps are as long as the
// model's options allow, and only the last one has logits; they are cut into pieces as the
// model cuts them.
func (t *Tracer) Pipeline(ctx context.Context, p parallel.Placement, c Costs, w Work) (cost.Pipeline, error) {
	if err := t.check(w, w.Rows); err != nil {
		return cost.Pipeline{}, err
	}
	stages := p.Stages()
	list, lasts := t.pieces(w, len(stages))
	out := cost.Pipeline{Stages: make([]cost.Stage, len(stages)), Pieces: make([]cost.Piece, len(list)), Control: c.Links[cost.Message]}
	row := 0 // bytes between two stages
	for i, stage := range stages {
		s := &out.Stages[i]
		s.Models = c.Models[stage.Ranks.Start:stage.Ranks.End]
		s.Pieces = make([][]cost.Trace, len(list))
		for r := stage.Ranks.Start; r < stage.Ranks.End; r++ {
			got, err := t.inStage(ctx, p, r, list)
			if err != nil {
				return out, fmt.Errorf("tracing the ops of rank %d: %w", r, err)
			}
			for k, trace := range got.pieces {
				s.Pieces[k] = append(s.Pieces[k], trace)
			}
			if i == 0 {
				s.Head = append(s.Head, got.head)
			}
			row, out.Final = max(row, got.row), max(out.Final, got.final)
		}
		s.Links = c.among(numbers(stage.Ranks)...)
		next := stages[(i+1)%len(stages)]
		out.Next = append(out.Next, c.among(stage.Ranks.Start, next.Ranks.Start)[cost.Message])
	}
	for k, piece := range list {
		out.Pieces[k] = cost.Piece{Bytes: piece.Rows * row, Last: lasts[k]}
	}
	return out, nil
}

// pieces divides work into pieces; lasts says which of them end a step.
func (t *Tracer) pieces(w Work, stages int) (list []Work, lasts []bool) {
	for at := 0; at < w.Rows; {
		n := min(t.m.Info().MaxTokens, w.Rows-at)
		of := decoder.Pieces(n, stages, at+n == w.Rows)
		for i, rows := range of {
			list = append(list, Work{Rows: rows.Len(), Pos: w.Pos + at + rows.Start})
			lasts = append(lasts, i == len(of)-1)
		}
		at += n
	}
	return list, lasts
}

// staged is what a rank of a stage does.
type staged struct {
	pieces []cost.Trace
	head   cost.Trace // behind the last piece, with one final row
	row    int        // bytes of a row that it receives from the stage before, 0: nothing
	final  int        // bytes of a final row that it receives from the last stage, 0: nothing
}

// inStage traces one rank of a placement with stages. Each piece runs as a step of its own,
// without logits so that it is not divided again.
func (t *Tracer) inStage(ctx context.Context, p parallel.Placement, r int, list []Work) (s staged, err error) {
	var between, trace cost.Trace
	world, err := phantomGroup(ctx, r, len(p), &between)
	if err != nil {
		return s, err
	}
	defer func() { _ = world.Close() }() // it holds nothing
	stages := p.Stages()
	ranks := stages[parallel.StageOf(stages, r)].Ranks
	inside, err := phantomGroup(ctx, r-ranks.Start, ranks.Len(), &trace)
	if err != nil {
		return s, err
	}
	defer func() { _ = inside.Close() }() // likewise
	if err := t.m.JoinStage(world, inside, p); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, t.m.Join(nil, nil)) }()
	run := func(w Work, want model.Want) (model.Step, cost.Trace, error) {
		between, trace = nil, nil
		step, err := t.run(ctx, w, want, &trace)
		return step, trace, err
	}
	if err := t.advance(ctx, list[0].Pos); err != nil {
		return s, err
	}
	if ranks.Start == 0 { // the head of one row is what follows its layers
		one := Work{Rows: 1, Pos: list[0].Pos}
		_, layers, err := run(one, model.WantNone)
		if err != nil {
			return s, err
		}
		_, all, err := run(one, model.WantLast)
		if err != nil {
			return s, err
		}
		s.head, s.final = all[len(layers):], bytesOf(between)
	}
	for _, w := range list {
		step, trace, err := run(w, model.WantNone)
		if err != nil {
			return s, err
		}
		s.pieces, s.row = append(s.pieces, trace), bytesOf(between)/w.Rows
		t.m.Commit(step)
	}
	return s, nil
}

// bytesOf is the bytes of the messages that are received in a trace.
func bytesOf(trace cost.Trace) (n int) {
	for _, e := range trace {
		if e.Start != nil && e.Start.Kind != distributed.Send.String() {
			n += e.Start.Bytes
		}
	}
	return n
}

// numbers are those of a range.
func numbers(r parallel.Range) []int {
	out := make([]int, r.Len())
	for i := range out {
		out[i] = r.Start + i
	}
	return out
}
