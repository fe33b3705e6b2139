package replica

import (
	"context"
	"errors"

	"ringmaster/distributed/cluster"
)

// Worker is the program of a follower: it runs the leader's steps.
type Worker struct {
	resident *resident
	// before is the last step, nil once it is committed or abandoned. Only Work
	// uses the fields below.
	before *work
	epoch  uint32 // of the last work that began an epoch
	state  state
	took   *took // what it received before it joined, nil for nothing
}

var (
	_ cluster.Worker = (*Worker)(nil)
	_ cluster.Joiner = (*Worker)(nil)
)

// NewWorker makes the program of a rank other than 0.
func NewWorker(rank int, h Host) *Worker { return &Worker{resident: newResident(rank, h, false)} }

// Form implements cluster.Program; see Program.Form.
func (w *Worker) Form(ctx context.Context, settings []byte) error {
	return w.resident.form(ctx, settings)
}

// Start implements cluster.Program; see Program.Start.
func (w *Worker) Start(e cluster.Epoch) error {
	_, err := w.resident.start(e)
	return err
}

// Work implements cluster.Worker. It commits the previous step if the payload says
// so, and runs the payload's step without returning logits, because only the
// leader needs them.
func (w *Worker) Work(payload []byte) (cluster.Digest, error) {
	begin, begins, err := decodeBeginning(payload)
	var p work
	if err == nil && !begins {
		p, err = decodeWork(payload)
	}
	if err != nil {
		return nil, err
	}
	h := w.resident
	if !h.tryAcquire() {
		return nil, errors.New("received work while the model is being formed or closed")
	}
	defer h.release()
	if !h.joined {
		return nil, errors.New("received work before the epoch began")
	}
	if begins {
		w.epoch = h.epoch.Number
		return nil, w.follow(begin)
	}
	if w.epoch != h.epoch.Number {
		return nil, errors.New("received a step before the work that begins the epoch")
	}
	before := w.before
	w.before = nil
	if p.committed && before == nil {
		return nil, errors.New("the leader committed a step, but this rank ran none in this epoch")
	}
	if before != nil {
		if p.committed {
			if err := h.commitKept(before.step, p.kept); err != nil {
				return nil, err
			}
		}
		w.state.number = before.number
	}
	if p.piece != nil {
		if err := h.receivePiece(*p.piece); err != nil {
			return nil, err
		}
		w.before = &p
		return nil, nil
	}
	if p.task != nil {
		if _, err := h.examine(*p.task); err != nil {
			return nil, err
		}
		w.before = &p
		return nil, nil
	}
	if err := h.rank.Prepare(p.step); err != nil {
		return nil, err
	}
	_, digest, err := h.run(p.step)
	if err != nil {
		return nil, err
	}
	w.before = &p
	return digest, nil
}

// Report implements cluster.Worker.
func (w *Worker) Report() []byte { return w.resident.snapshot().encode() }

// Close frees the model. ctx bounds the wait for a step in flight.
func (w *Worker) Close(ctx context.Context) error { return w.resident.close(ctx) }
