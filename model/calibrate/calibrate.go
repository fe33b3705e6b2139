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
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/internal/host"
	"ringmaster/internal/safetext"
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
	Reads     func() int64 // times that this process has waited for the disk, see host.DiskReads
}

// Standard is less than two seconds.
func Standard() Budget {
	return Budget{Ops: 1200 * time.Millisecond, Exchanges: 400 * time.Millisecond, Now: time.Now, Reads: host.DiskReads}
}

// Costs is what was measured on a group.
type Costs struct {
	Models []cost.Model // [ranks]
	Links  cost.Links   // of all ranks
	// Among are the links of some of the ranks where pairs of them differ; nil: they are like
	// those of all.
	Among func(ranks ...int) cost.Links
	// Missing is why the group could not be measured, "" if it was. The other fields are
	// then empty.
	Missing string
}

// among are the links of some of the ranks.
func (c Costs) among(ranks ...int) cost.Links {
	if c.Among == nil {
		return c.Links
	}
	return c.Among(ranks...)
}

// mostModel is the most bytes that a rank may send as its cost.Model, and mostReason as the
// reason why it has none.
const (
	mostModel  = 1 << 20
	mostReason = 1 << 10
)

// reported is what a rank sends of its ops.
type reported struct {
	Model   cost.Model `json:"model"`
	Missing string     `json:"missing,omitempty"` // why there is no model
}

// Measure measures on all ranks of a group at the same time. The model computes on b and
// runs ops of its part of the placement, which must be one of the group. Afterwards it
// has no group and no sequences. The costs are rank 0's; the other ranks get the zero
// value. A rank that cannot measure tells the others: the costs then say what is missing,
// and the group continues. Errors are those of the group, of ctx, and of a model that
// cannot leave the group.
func Measure(ctx context.Context, g *distributed.Group, m Model, b *record.Backend, p parallel.Placement, budget Budget) (Costs, error) {
	samples, err := exchanges(ctx, g, budget)
	if err != nil {
		return Costs{}, err
	}
	rank := g.Rank()
	if p.Helped() { // each computes whole layers, as a rank alone does
		p, rank = p[:1], 0
	}
	ops, err := measureOps(ctx, m, b, p, rank, budget)
	if ctx.Err() != nil {
		return Costs{}, context.Cause(ctx)
	}
	m.Forget()
	if left := m.Join(nil, nil); left != nil {
		return Costs{}, fmt.Errorf("calibrating ops: %w", left)
	}
	all, err := gather(ctx, g, report(ops, err))
	if err != nil || g.Rank() != 0 {
		return Costs{}, err
	}
	c := Costs{Models: make([]cost.Model, g.Size())}
	for r, text := range all {
		from, err := received(text)
		if err != nil {
			return Costs{}, fmt.Errorf("the costs of %s: %w", g.Name(r), err)
		}
		if from.Missing != "" {
			return Costs{Missing: fmt.Sprintf("%s: %s", g.Name(r), safetext.Line(from.Missing, mostReason))}, nil
		}
		c.Models[r] = from.Model
	}
	complete(c.Models)
	if c.Links, err = fitLinks(samples, g.Size()); err != nil {
		return Costs{Missing: err.Error()}, nil
	}
	return c, nil
}

// report is what a rank sends: its model, or why it has none.
func report(m cost.Model, err error) []byte {
	text, unfit := json.Marshal(reported{Model: m})
	if err = errors.Join(err, unfit); err == nil && len(text) > mostModel {
		err = fmt.Errorf("costs of %d bytes; at most %d are allowed", len(text), mostModel)
	}
	if err == nil {
		return text
	}
	why := err.Error()
	text, _ = json.Marshal(reported{Missing: why[:min(len(why), mostReason)]}) // a string cannot fail
	return text
}

// received reads what report has made on another rank, with numbers within their bounds.
func received(text []byte) (from reported, err error) {
	err = json.Unmarshal(text, &from)
	from.Model = from.Model.Bounded()
	return from, err
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
			return nil, fmt.Errorf("%s has costs of %d bytes; at most %d are allowed", g.Name(r), n, mostModel)
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
