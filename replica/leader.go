package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/model"
)

// Leader is the model that all ranks run together, on rank 0. Info, Epoch,
// SequenceBytes, SequenceBudget, Held, Reports and Repeats may be called by any
// goroutine, the rest by one.
type Leader struct {
	resident *resident
	cluster  Cluster

	rerun  atomic.Bool   // a step that was interrupted waits for an epoch, or runs again
	lost   atomic.Bool   // all sequences are lost since the lineage began
	losses atomic.Uint64 // how often that has happened
	held   atomic.Int64  // bytes of the sequences

	recoveries atomic.Uint64 // steps that ran again in another epoch
	recovered  atomic.Int64  // time from their interruption to their end, in ns
	again      atomic.Int64  // the part of it in the epoch in which they ended: with what ranks had to be sent
	agreeing   atomic.Int64  // time from the end of steps on this rank until all had agreed, in ns

	// Used by the goroutine that runs steps only.
	epoch     uint32 // that the ranks have begun together, 0 before the first
	state     state  // number is that of the last step that all ranks have run
	given     uint64 // number of the last step that was sent
	ran       bool   // that step succeeded, and can be committed
	committed bool   // step state.number is committed
	told      bool   // the followers know whether it is
	tokens    map[model.SeqID][]int32
	logits    []float32 // of the last step

	copied   map[int]*copied // by rank: what it has taken before it joins; whoever has the turn uses it
	couriers sync.WaitGroup
	stop     context.CancelFunc // of the couriers
}

var (
	_ model.Model  = (*Leader)(nil)
	_ model.Epochs = (*Leader)(nil)
	_ model.Sized  = (*Leader)(nil)
	_ Cluster      = (*cluster.Leader)(nil)
)

// NewLeader makes the model of a cluster whose planner is p.
func NewLeader(p *Program, c Cluster) *Leader {
	ctx, stop := context.WithCancel(context.Background())
	l := &Leader{resident: p.resident, cluster: c, copied: map[int]*copied{}, stop: stop}
	p.leader.Store(l)
	l.couriers.Go(func() { l.bring(ctx) })
	return l
}

// Info implements model.Model. It is that of the first model that the Program
// loaded, and empty before the first epoch. Models of later epochs have the same.
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

// SequenceBudget implements model.Sized: it is that of the last plan.
func (l *Leader) SequenceBudget() int64 {
	l.resident.mu.Lock()
	defer l.resident.mu.Unlock()
	return l.resident.budget
}

// Held is the bytes of the KV caches of the committed sequences on each rank.
func (l *Leader) Held() int64 { return l.held.Load() }

// Recoveries is how many steps were interrupted by the end of an epoch and ran again in
// another one, and the time from their interruption to their end, in sum.
func (l *Leader) Recoveries() (n uint64, took time.Duration) {
	return l.recoveries.Load(), time.Duration(l.recovered.Load())
}

// Again is the part of the time of Recoveries that the steps took in the epochs in which
// they ended: the sequences sent to newcomers, and the step itself.
func (l *Leader) Again() time.Duration { return time.Duration(l.again.Load()) }

// Agreeing is how long this rank has waited after its part of a step until all ranks had
// run it and agreed on its digest, in sum.
func (l *Leader) Agreeing() time.Duration { return time.Duration(l.agreeing.Load()) }

// Repeats are the last things that were computed again, oldest first, at most 50 of
// each kind.
func (l *Leader) Repeats() []Repeat { return l.resident.repeats.get() }

// Epoch implements model.Epochs. The model recovers until the step has run that was
// interrupted: it reads what is new to the ranks.
func (l *Leader) Epoch() (uint64, error) {
	e, recovering, err := l.cluster.State()
	reads := l.cluster.Reads()
	switch {
	case err == nil && l.rerun.Load():
		err = fmt.Errorf("epoch %d runs with %d ranks; the step that was interrupted runs again", e.Number, len(e.Members))
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

// Members returns the number of the last epoch and the ranks that form it, none if it
// does not run.
func (l *Leader) Members() (epoch uint32, ranks []int) {
	e, err := l.cluster.Epoch()
	if err != nil {
		return e.Number, nil
	}
	return e.Number, e.Members
}

// lose notes that all sequences are lost: the next epoch begins without any.
func (l *Leader) lose() {
	if l.lost.CompareAndSwap(false, true) {
		l.losses.Add(1)
	}
}

// mostEpochs is in how many epochs a step is tried.
const mostEpochs = 8

// Forward implements model.Model: all ranks run the step. Once sent, a step runs to
// its end on every rank; ctx cancels it only before. When its epoch ends and the
// cluster is recovering, the step runs again in the next one, for which Forward waits.
// A lack of memory on this rank and errors in the step are returned before
// anything is sent. Every other error is a model.UnavailableError with the cluster's
// verdict, and all sequences are lost.
func (l *Leader) Forward(ctx context.Context, step model.Step) ([][]float32, error) {
	l.ran = false
	defer l.rerun.Store(false)
	var err error       // the last verdict
	var since time.Time // the first interruption
	for range mostEpochs {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("replica: step cancelled before it was sent: %w", ctx.Err())
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
			l.rerun.Store(true)
		}
	}
	l.lose()
	return nil, &model.UnavailableError{Cause: err}
}

// try runs a step in an epoch; again tells that the epoch was lost, and that the next
// may run it.
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
	err = l.work(e, n, func() (digest cluster.Digest, err error) {
		rows, digest, err = h.run(step)
		return digest, err
	})
	if err != nil {
		again, err := l.interrupted(e, err)
		return nil, again, err
	}
	l.ran = true
	return l.keep(rows), false, nil
}

// keep copies the logits of a step to memory that stays until the next: the rank's own is
// freed when its model joins the next group, which does not wait for whoever reads them.
// The caller has the turn.
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

// next is the next work, with its number and what became of the last.
func (l *Leader) next(w work) work {
	w.committed, w.number = l.committed && !l.told, l.given+1
	return w
}

// work does this rank's part of work n, which has been sent, and waits until all ranks
// have done it and agree. The caller has the turn.
func (l *Leader) work(e cluster.Epoch, n uint64, do func() (cluster.Digest, error)) error {
	l.given++
	l.told = true
	digest, err := do()
	if err == nil {
		began := time.Now()
		err = l.cluster.End(e.Done, n, digest)
		l.agreeing.Add(int64(time.Since(began)))
	}
	if err != nil {
		return err
	}
	l.state.number, l.committed, l.told = l.given, false, false
	return nil
}

// Reports are the reports of all ranks, [size] by rank; that of a rank that is no
// member of the epoch has no Epoch, and neither has one that cannot be right. Such a one is
// named by the error, beside the others.
func (l *Leader) Reports(ctx context.Context) ([]Report, error) {
	raw, err := l.cluster.Reports(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Report, len(raw))
	layers := l.Info().Layers
	var odd []error
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
			r, odd = Report{Rank: i}, append(odd, err)
		}
		out[i] = r
	}
	return out, errors.Join(odd...)
}

// Close implements model.Model: it frees the model of this rank, like the
// Program's Close. No step may be in flight. The cluster stays the caller's.
func (l *Leader) Close() error {
	l.stop()
	l.couriers.Wait()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("Close does not wait for it"))
	return l.resident.close(ctx)
}
