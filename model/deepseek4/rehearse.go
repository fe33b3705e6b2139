package deepseek4

import (
	"context"
	"fmt"

	"ringmaster/kernels/contract"
	"ringmaster/model"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// rehearse runs steps of one token of the loaded weights on a backend that
// computes nothing and checks the arguments of every op, so that what
// would be misuse of an op later is an error now. One step is the first of a sequence;
// if the context has room, another is so late that the indexer runs.
func (m *Model) rehearse() (err error) {
	b := contract.Checker{Backend: m.b}
	r := &Model{c: m.c, w: m.w, b: b, sequences: map[model.SeqID]*sequence{},
		contextLength: m.contextLength, maxTokens: 1, meter: parallel.NewMeter(nil)}
	r.sizes = newFootprint(&r.c, r.contextLength, r.maxTokens)
	defer func() {
		r.dropAll()
		r.scratch.free(b)
		if r.routed != nil {
			r.routed.Free()
		}
	}()
	if r.routed, err = moe.NewForward(b, expertShape(&r.c, 1), parallel.Sum, r.meter); err != nil {
		return err
	}
	if r.scratch, err = newScratch(b, &r.c, 1); err != nil {
		return fmt.Errorf("scratch memory for a step of one token: %w", err)
	}
	positions := []int{0}
	if late := 4*(r.c.IndexTopK+1) - 1; r.c.indexed() && late < r.contextLength {
		positions = append(positions, late)
	}
	for _, pos := range positions {
		if q := r.sequences[1]; q != nil {
			q.length, q.peak = pos, pos
		}
		_, err := r.Forward(context.Background(), model.Step{
			Entries: []model.Entry{{Seq: 1, Pos: pos, Tokens: []int32{0}, Want: model.WantLast}}})
		if err != nil {
			return err
		}
	}
	return nil
}
