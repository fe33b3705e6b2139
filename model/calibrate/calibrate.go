// Package calibrate measures what a model costs on a group, and predicts what a step will
// take with a placement that the group has not run. Every rank times the ops that it
// would run, the group times its exchanges, and rank 0 fits the lines of package cost to
// them. A Tracer lists what each rank computes and sends in a step:
//
//	costs, err := calibrate.Measure(ctx, g, m, b, placement, calibrate.Standard())
//	t, err := calibrate.NewTracer(open)
//	estimate, err := t.Expect(ctx, placement, costs, calibrate.Work{Rows: 1, Pos: 4096})
package calibrate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
)

// Model is the model of a rank, between steps and without sequences.
type Model interface {
	Info() model.Info
	Join(g *distributed.Group, p parallel.Placement) error
	Forget()
	Prepare(step model.Step) error
	Run(ctx context.Context) ([][]float32, error)
}

// Budget bounds the time of a calibration. An op or an exchange that has begun is not
// interrupted.
type Budget struct {
	Ops       time.Duration // of the ops of a rank
	Exchanges time.Duration // of the exchanges of the group
	Now       func() time.Time
}

// Standard is less than two seconds.
func Standard() Budget {
	return Budget{Ops: 1200 * time.Millisecond, Exchanges: 400 * time.Millisecond, Now: time.Now}
}

// Costs is what was measured on a group.
type Costs struct {
	Models []cost.Model // [ranks]
	Links  cost.Links
}

// mostModel is the most bytes that a rank may send as its cost.Model.
const mostModel = 1 << 20

// Measure measures on all ranks of a group at the same time. The model computes on b and
// runs ops of its part of the placement, which must be one of the group. Afterwards it
// has no group and no sequences. The costs are rank 0's; the other ranks get the zero
// value. Errors are those of the group and of the model.
func Measure(ctx context.Context, g *distributed.Group, m Model, b *record.Backend, p parallel.Placement, budget Budget) (Costs, error) {
	links, err := exchanges(ctx, g, budget)
	if err != nil {
		return Costs{}, err
	}
	ops, err := measureOps(ctx, m, b, p, g.Rank(), budget)
	if err != nil {
		return Costs{}, fmt.Errorf("calibrating ops: %w", err)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		return Costs{}, fmt.Errorf("calibrating ops: %w", err)
	}
	all, err := gather(ctx, g, text)
	if err != nil || g.Rank() != 0 {
		return Costs{}, err
	}
	c := Costs{Models: make([]cost.Model, g.Size()), Links: links}
	for r, text := range all {
		if err := json.Unmarshal(text, &c.Models[r]); err != nil {
			return Costs{}, fmt.Errorf("the costs of rank %d: %w", r, err)
		}
	}
	complete(c.Models)
	return c, nil
}

// complete gives each rank the lines of the ops that only others have run, such as those
// of a shared expert with fewer segments than ranks. The lines of others serve, because
// all ranks have the same kernels, if not the same speed.
func complete(models []cost.Model) {
	for r := range models {
		for _, other := range models {
			for kind, l := range other.Ops {
				if _, ok := models[r].Ops[kind]; !ok {
					models[r].Ops[kind] = l
				}
			}
		}
	}
}

// gather leaves the texts of all ranks on every rank, [ranks].
func gather(ctx context.Context, g *distributed.Group, text []byte) ([][]byte, error) {
	lengths := make([]byte, 8*g.Size())
	if err := g.AllGather(ctx, lengths, binary.LittleEndian.AppendUint64(nil, uint64(len(text)))); err != nil {
		return nil, err
	}
	sizes, total := make([]int, g.Size()), 0
	for r := range sizes {
		n := binary.LittleEndian.Uint64(lengths[8*r:])
		if n > mostModel {
			return nil, fmt.Errorf("rank %d has costs of %d bytes; at most %d are allowed", r, n, mostModel)
		}
		sizes[r] = int(n)
		total += int(n)
	}
	all, out, at := make([]byte, total), make([][]byte, g.Size()), 0
	for r, n := range sizes {
		out[r] = all[at : at+n]
		at += n
	}
	copy(out[g.Rank()], text)
	return out, g.AllGatherV(ctx, all, sizes)
}

// Agree returns rank 0's numbers on all ranks.
func Agree(ctx context.Context, g *distributed.Group, numbers ...int) ([]int, error) {
	b := make([]byte, 8*len(numbers))
	for i, n := range numbers {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(n))
	}
	err := g.Broadcast(ctx, b, 0)
	out := make([]int, len(numbers))
	for i := range out {
		out[i] = int(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out, err
}
