package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/model"
)

// Leader is the model that all ranks run together, on rank 0. Any goroutine may call Info,
// Epoch, SequenceBytes, SequenceBudget, Held, Reports and Repeats; one goroutine calls the
// rest.
type Leader struct {
	resident *resident
	cluster  Cluster

	rerunning     atomic.Bool   // an interrupted step waits for an epoch, or runs again
	sequencesLost atomic.Bool   // all sequences of the lineage are lost
	losses        atomic.Uint64 // how often all sequences were lost
	held          atomic.Int64  // bytes of the sequences

	recoveries atomic.Uint64 // steps that ran again in another epoch
	recovered  atomic.Int64  // time from their interruption to their end, in ns
	again      atomic.Int64  // the part of it in the epoch in which they ended, including the sequences sent to ranks
	agreeing   atomic.Int64  // time from the end of steps on this rank until all had agreed, in ns

	// Used by the goroutine that runs steps only.
	epoch             uint32                  // that the ranks have begun together, 0 before the first
	staged            bool                    // it has stages
	state             state                   // number is that of the last step that all ranks have run
	lastSent          uint64                  // number of the last step that was sent
	lastSucceeded     bool                    // that step succeeded and can be committed
	ran               model.Step              // the last step that succeeded
	committed         bool                    // step state.number is committed
	kept              []int                   // the tokens that its entries keep; nil: all
	followersInformed bool                    // the followers know whether it is committed
	tokens            map[model.SeqID][]int32 // of each committed sequence
	logits            []float32               // of the last step

	settling *time.Timer     // calls settle after a step with a helper, nil before the first
	copied   map[int]*copied // by rank: what it has received before it joins; the holder of the turn uses it
	couriers sync.WaitGroup
	stop     context.CancelFunc // of the couriers
}

var (
	_ model.Model  = (*Leader)(nil)
	_ model.Epochs = (*Leader)(nil)
	_ model.Sized  = (*Leader)(nil)
	_ Cluster      = (*cluster.Leader)(nil)
)

// NewLeader makes the model of a cluster with the planner p.
func NewLeader(p *Program, c Cluster) *Leader {
	ctx, stop := context.WithCancel(context.Background())
	l := &Leader{resident: p.resident, cluster: c, copied: map[int]*copied{}, stop: stop}
	p.leader.Store(l)
	l.couriers.Go(func() { l.bring(ctx) })
	return l
}

// Info implements model.Model. It returns the Info of the first model that the Program
// loaded, empty before the first epoch. Models of later epochs have the same.
func (l *Leader) Info() model.Info {
	l.resident.mu.Lock()
	defer l.resident.mu.Unlock()
	return l.resident.info
}

// SequenceBytes implements model.Sized. It is 0 before the first epoch.
func (l *Leader) SequenceBytes(length int) int64 {
	l.resident.mu.Lock()
	sizes := l.resident.sizes
	l.resident.mu.Unlock()
	if sizes == nil {
		return 0
	}
	return sizes(length)
}

// CheckpointBytes implements model.Sized. It is 0 before the first epoch.
func (l *Leader) CheckpointBytes() int64 {
	l.resident.mu.Lock()
	defer l.resident.mu.Unlock()
	return l.resident.checkpoint
}

// SequenceBudget implements model.Sized. It is the budget of the last plan.
func (l *Leader) SequenceBudget() int64 {
	l.resident.mu.Lock()
	defer l.resident.mu.Unlock()
	return l.resident.budget
}

// Held returns the bytes of the KV caches of the committed sequences on each rank, with
// their checkpoints.
func (l *Leader) Held() int64 { return l.held.Load() }

// Recoveries returns how many steps were interrupted by the end of an epoch and ran again
// in another one, and the total time from their interruption to their end.
func (l *Leader) Recoveries() (n uint64, took time.Duration) {
	return l.recoveries.Load(), time.Duration(l.recovered.Load())
}

// Again returns the part of the time of Recoveries that the steps took in the epochs in
// which they ended: the sequences sent to new ranks, and the step itself.
func (l *Leader) Again() time.Duration { return time.Duration(l.again.Load()) }

// Agreeing returns the total time that this rank has waited after its part of a step until
// all ranks had run the step and agreed on its digest.
func (l *Leader) Agreeing() time.Duration { return time.Duration(l.agreeing.Load()) }

// Repeats returns the last repeated computations, oldest first, at most 50 of each kind.
func (l *Leader) Repeats() []Repeat { return l.resident.repeats.get() }

// Epoch implements model.Epochs. The model counts as recovering until the interrupted step
// has run, because that step reads what is new to the ranks.
func (l *Leader) Epoch() (uint64, error) {
	e, recovering, err := l.cluster.State()
	reads := l.cluster.Reads()
	switch {
	case err == nil && l.rerunning.Load():
		err = fmt.Errorf("epoch %d runs with %s; the interrupted step runs again", e.Number, units.Count(len(e.Members), "rank"))
		if reads.Bytes > 0 {
			err = fmt.Errorf("%w; %v", err, reads)
		}
		return l.losses.Load(), &model.RecoveringError{Cause: err, Reading: reads.Takes()}
	case err == nil:
		return l.losses.Load(), nil
	case recovering:
		return l.losses.Load(), &model.RecoveringError{Cause: err, Reading: reads.Takes()}
	}
	l.lose()
	return l.losses.Load(), &model.UnavailableError{Cause: err}
}

// Members returns the number of the last epoch and its ranks, none if it does not run.
func (l *Leader) Members() (epoch uint32, ranks []int) {
	e, err := l.cluster.Epoch()
	if err != nil {
		return e.Number, nil
	}
	return e.Number, e.Members
}

// lose notes that all sequences are lost, so that the next epoch begins without any.
func (l *Leader) lose() {
	if l.sequencesLost.CompareAndSwap(false, true) {
		l.losses.Add(1)
	}
}

// mostEpochs bounds the epochs in which a step is tried.
const mostEpochs = 8

// Forward implements model.Model: all ranks run the step. Once sent, a step runs to its end
// on every rank; ctx cancels it only before. When its epoch ends and the cluster is
// recovering, the step runs again in the next one, for which Forward waits. If memory has
// run out on this rank or the step is invalid, it returns an error before it sends
// anything. Every other error is a model.UnavailableError with the cluster's verdict, and
// all sequences are lost.
func (l *Leader) Forward(ctx context.Context, step model.Step) ([][]float32, error) {
	l.lastSucceeded = false
	defer l.rerunning.Store(false)
	var err error       // the last verdict
	var since time.Time // the first interruption
	for range mostEpochs {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("step cancelled before it was sent: %w", ctx.Err())
		}
		e, none := l.cluster.Await(ctx)
		if none != nil {
			if ctx.Err() != nil {
				continue
			}
			if err == nil {
				err = none
			}
			break
		}
		var rows [][]float32
		var again bool
		began := time.Now()
		rows, again, err = l.try(e, step)
		switch {
		case err == nil && !since.IsZero():
			took := time.Since(since)
			l.again.Add(int64(time.Since(began)))
			l.recoveries.Add(1)
			l.recovered.Add(int64(took))
			l.resident.repeats.add(Repeat{Kind: AfterLoss, Took: took})
			return rows, nil
		case err == nil || !again:
			return rows, err
		case since.IsZero():
			since = time.Now()
			l.rerunning.Store(true)
		}
	}
	l.lose()
	return nil, &model.UnavailableError{Cause: err}
}

// try runs a step in an epoch; again says that the epoch was lost and that the next one may
// run the step.
func (l *Leader) try(e cluster.Epoch, step model.Step) (rows [][]float32, again bool, err error) {
	h := l.resident
	if err := h.inEpoch(e); err != nil {
		return nil, true, err
	}
	defer h.release()
	if err := l.enter(e, step); err != nil {
		again, err := l.interrupted(e, err)
		return nil, again, err
	}
	if l.settling != nil {
		l.settling.Stop()
	}
	if h.helped() {
		step.Help = h.rank.Help(step)
	}
	payload, err := l.next(work{step: step}).encode()
	if err != nil {
		return nil, false, err
	}
	if err := h.rank.Prepare(step); err != nil {
		return nil, false, err
	}
	n, err := l.cluster.Begin(e.Number, payload)
	if err != nil {
		return nil, true, err
	}
	// On one CPU the goroutines that send the step to the other ranks would otherwise wait
	// until this rank waits in its first exchange.
	runtime.Gosched()
	// A helper may still send the state of this step, which the next one takes.
	ahead := h.helped() || h.staged() && !wants(step)
	err = l.work(e, n, ahead, func() (digest cluster.Digest, err error) {
		rows, digest, err = h.run(step)
		return digest, err
	})
	if err != nil {
		again, err := l.interrupted(e, err)
		return nil, again, err
	}
	l.lastSucceeded, l.ran = true, step
	if step.Help != nil {
		l.settling = time.AfterFunc(settleAfter, l.settle)
	}
	return l.keep(rows), false, nil
}

// settleAfter is how long after a step the helper may wait for the next one to take the state
// that it sends: less than a pause that people notice, more than the time between two steps.
const settleAfter = time.Second

// settle takes the state that the helper sends of the last step, so that it does not wait for a
// step that may not come soon.
func (l *Leader) settle() {
	h := l.resident
	ctx, cancel := context.WithTimeout(context.Background(), courierTurn)
	defer cancel()
	if h.acquire(ctx) != nil {
		return // a step runs
	}
	defer h.release()
	if h.rank != nil {
		if err := h.rank.Settle(); err != nil {
			slog.Warn("the state of the last step is not complete; the next step tries again", "error", err)
		}
	}
}

// keep copies the logits of a step to memory that stays valid until the next step. The copy
// is needed because the rank's own memory is freed when its model joins the next group,
// which does not wait for readers. The caller has the turn.
func (l *Leader) keep(rows [][]float32) [][]float32 {
	n := 0
	for _, row := range rows {
		n += len(row)
	}
	if cap(l.logits) < n {
		l.logits = make([]float32, n)
	}
	out, rest := make([][]float32, len(rows)), l.logits[:n]
	for i, row := range rows {
		out[i] = rest[:copy(rest, row):len(row)]
		rest = rest[len(row):]
	}
	return out
}

// next returns the next work, with its number and whether the last step was committed.
func (l *Leader) next(w work) work {
	w.number = l.lastSent + 1
	if l.committed && !l.followersInformed {
		w.committed, w.kept = true, l.kept
	}
	return w
}

// work does this rank's part of work n, which has been sent, and waits until all ranks
// have done it and agree. With ahead it does not wait, so that the next step begins while later
// stages or the helper still compute this one; later work that waits, and so any step with logits, waits for
// this, too. The caller has the turn.
func (l *Leader) work(e cluster.Epoch, n uint64, ahead bool, do func() (cluster.Digest, error)) error {
	l.lastSent++
	l.followersInformed = true
	digest, err := do()
	switch {
	case err != nil:
	case ahead:
		l.cluster.EndLater(n, digest)
	case l.resident.helped(): // it ends its last step once rank 0 has taken the state
		if err = l.resident.rank.Settle(); err == nil {
			err = l.cluster.End(e.Done, n, digest)
		}
	default:
		began := time.Now()
		err = l.cluster.End(e.Done, n, digest)
		l.agreeing.Add(int64(time.Since(began)))
	}
	if err != nil {
		return err
	}
	l.state.number, l.committed, l.kept, l.followersInformed = l.lastSent, false, nil, false
	return nil
}

// wants reports whether a step has rows of logits.
func wants(s model.Step) bool {
	return slices.ContainsFunc(s.Entries, func(e model.Entry) bool { return e.Want != model.WantNone })
}

// Reports returns the reports of all ranks, [size] by rank. Reports of ranks outside the
// epoch and invalid reports have no Epoch. The error names the invalid ones; the others are
// returned beside it.
func (l *Leader) Reports(ctx context.Context) ([]Report, error) {
	raw, err := l.cluster.Reports(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Report, len(raw))
	layers := l.Info().Layers
	var invalid []error
	for i, b := range raw {
		if i == 0 {
			out[0] = l.resident.snapshot()
			continue
		}
		r, err := Report{Rank: i}, error(nil)
		if b != nil {
			r, err = parseReport(b, i, layers)
		}
		if err != nil {
			r, invalid = Report{Rank: i}, append(invalid, err)
		}
		out[i] = r
	}
	return out, errors.Join(invalid...)
}

// Close implements model.Model: it frees the model of this rank, like the Program's Close.
// No step may be in flight. The caller keeps the cluster.
func (l *Leader) Close() error {
	if l.settling != nil {
		l.settling.Stop()
	}
	l.stop()
	l.couriers.Wait()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("Close does not wait for it"))
	return l.resident.close(ctx)
}
