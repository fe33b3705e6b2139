package lockstep

import (
	"context"
	"errors"

	"ringmaster/distributed/cluster"
	"ringmaster/model"
)

// Worker is a follower's part: it runs the leader's steps and decides nothing.
type Worker struct {
	host *host
	// before is the last step that was run, in epoch; nil if there is none.
	// Both are used by Work only.
	before *model.Step
	epoch  uint32
}

var _ cluster.Worker = (*Worker)(nil)

// NewWorker makes the program of a rank other than 0.
func NewWorker(rank int, load Load) *Worker { return &Worker{host: newHost(rank, load)} }

// Form implements cluster.Program, as that of Program does.
func (w *Worker) Form(ctx context.Context, settings []byte) error { return w.host.form(ctx, settings) }

// Start implements cluster.Program, as that of Program does.
func (w *Worker) Start(e cluster.Epoch) error { return w.host.start(e) }

// Work implements cluster.Worker: it commits the step before if that is owed,
// and runs the step of the payload without logits.
func (w *Worker) Work(payload []byte) (cluster.Digest, error) {
	p, err := decodeWork(payload)
	if err != nil {
		return nil, err
	}
	h := w.host
	if !h.tryTake() {
		return nil, errors.New("lockstep: work while the model is being formed or closed")
	}
	defer h.give()
	if !h.joined {
		return nil, errors.New("lockstep: work before the epoch began")
	}
	before := w.before
	w.before = nil
	if p.committed {
		if before == nil || w.epoch != h.epoch.Number {
			return nil, errors.New("lockstep: a commit is owed, but no step was run in this epoch")
		}
		h.rank.Commit(*before)
	}
	step := p.step
	for i := range step.Entries {
		step.Entries[i].Want = model.WantNone
	}
	if err := h.rank.Reserve(step); err != nil {
		return nil, err
	}
	_, digest, err := h.run(step)
	if err != nil {
		return nil, err
	}
	w.before, w.epoch = &step, h.epoch.Number
	return digest, nil
}

// Report implements cluster.Worker.
func (w *Worker) Report() []byte { return w.host.snapshot().encode() }

// Close frees the model. ctx bounds the wait for a step under way.
func (w *Worker) Close(ctx context.Context) error { return w.host.close(ctx) }
