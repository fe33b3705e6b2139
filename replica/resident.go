package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
	"ringmaster/parallel"
)

// resident keeps the model of this rank loaded from epoch to epoch. The cluster's goroutine
// loads the model and joins it to groups, another goroutine runs steps; acquire and release
// give one of them the turn.
type resident struct {
	number int // of this rank
	host   Host
	// infoFixed: all later models must have the first model's Info, because an engine uses
	// it. A follower has no engine, so when a leader is restarted with other settings, such
	// as another context, the follower loads the model for them.
	infoFixed bool

	planner Planner // nil on a follower

	// couriers counts the couriers that wait for the turn or have it; each has it for
	// moments only.
	couriers atomic.Int32
	turn     chan struct{} // capacity 1, a mutex for the fields below: full while it is held

	settings Settings
	rank     Rank // nil if none is loaded
	epoch    cluster.Epoch
	joined   bool               // rank is in the group of epoch
	inside   *distributed.Group // of the ranks of this one's stage, nil without stages
	entering *entering          // a sequence that is being sent to all ranks, nil for none
	closed   bool
	loads    uint64 // models loaded so far, and times one was used to measure; sequences belong to one of them

	repeats repeats
	digests atomic.Int64 // length of the last non-empty digest, 0 before the first

	mu         sync.Mutex             // guards what any goroutine may read; held only briefly
	info       model.Info             // of the model that was loaded last
	loaded     bool                   // info is set
	sizes      func(length int) int64 // of a sequence, nil before the first model
	checkpoint int64                  // bytes of one
	budget     int64                  // of the last plan
	report     Report
	group      *distributed.Group // of the epoch, nil before the first
	// exchanges is Rank.Exchanges of the model that ran the last step, nil before the first.
	exchanges func() [][]parallel.Exchange
}

func newResident(number int, h Host, infoFixed bool) *resident {
	return &resident{number: number, host: h, infoFixed: infoFixed, turn: make(chan struct{}, 1), report: Report{Rank: number}}
}

// inEpoch takes the turn if the model is in the group of the running epoch e.
func (h *resident) inEpoch(e cluster.Epoch) error {
	if err := h.acquire(e.Done); err != nil {
		return err
	}
	if !h.joined || h.epoch.Number != e.Number {
		h.release()
		return fmt.Errorf("epoch %d is over, and the next has not begun", e.Number)
	}
	return nil
}

// acquire waits for the turn until ctx ends, and then returns its cause. If the turn is
// free, it succeeds even after the end of ctx.
func (h *resident) acquire(ctx context.Context) error {
	if h.tryAcquire() {
		return nil
	}
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryAcquire takes the turn if it is free.
func (h *resident) tryAcquire() bool {
	select {
	case h.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (h *resident) release() { <-h.turn }

// courierTurn is far more than the longest turn of a courier.
const courierTurn = 2 * time.Second

// acquireUnlessForming takes the turn and waits only for couriers, so that the caller never
// waits for the group to form.
func (h *resident) acquireUnlessForming() bool {
	if h.tryAcquire() {
		return true
	}
	if h.couriers.Load() == 0 {
		return h.tryAcquire()
	}
	ctx, cancel := context.WithTimeout(context.Background(), courierTurn)
	defer cancel()
	return h.acquire(ctx) == nil
}

// form makes sure that a model for the settings of a plan is loaded.
func (h *resident) form(ctx context.Context, settings []byte) error {
	s, err := ParseSettings(settings)
	if err != nil {
		return err
	}
	if err := h.acquire(ctx); err != nil {
		return fmt.Errorf("a step of the previous epoch is still running: %w", err)
	}
	defer h.release()
	if ctx.Err() != nil {
		// The epoch ended before form got the turn. The model stays as it is, because the
		// next epoch may already run.
		return context.Cause(ctx)
	}
	h.joined = false
	if h.closed {
		return distributed.ErrClosed
	}
	if h.rank != nil && !h.settings.loadAlike(s) {
		h.stopEntering()
		err := h.rank.Close()
		h.rank = nil
		if err != nil {
			return fmt.Errorf("closing the model of the previous plan: %w", err)
		}
	}
	h.settings = s
	if h.rank != nil {
		h.keepSizes(h.rank)
		return nil
	}
	rank, err := h.host.Load(s, h.number)
	if err != nil {
		return err
	}
	if err := h.keepInfo(rank.Info()); err != nil {
		return errors.Join(err, rank.Close())
	}
	h.rank = rank
	h.loads++
	h.keepSizes(rank)
	return nil
}

// keepSizes passes the budget of the plan to the rank's model and publishes both for all
// goroutines. The caller has the turn.
func (h *resident) keepSizes(r Rank) {
	if h.number > 0 && (h.staged() || h.helped()) {
		// The budget is that of rank 0, which reserves memory for what all ranks hold.
		r.SetSequenceBudget(0)
	} else {
		r.SetSequenceBudget(h.settings.SequenceBudget)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sizes, h.checkpoint, h.budget = r.SequenceBytes, r.CheckpointBytes(), h.settings.SequenceBudget
}

// keepInfo records the model's Info. With infoFixed a different one is an error.
func (h *resident) keepInfo(info model.Info) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.infoFixed && h.loaded && info != h.info {
		return fmt.Errorf("the plan needs a model like %+v, but the previous one was like %+v; restart the program", info, h.info)
	}
	h.info, h.loaded = info, true
	return nil
}

// start joins the model to the group of an epoch, and returns the placement. The
// sequences stay.
func (h *resident) start(e cluster.Epoch) (parallel.Placement, error) {
	if err := h.acquire(e.Done); err != nil {
		return nil, fmt.Errorf("a step of the previous epoch is still running: %w", err)
	}
	defer h.release()
	if e.Done.Err() != nil {
		return nil, context.Cause(e.Done) // as in form
	}
	h.joined = false
	switch {
	case h.closed:
		return nil, distributed.ErrClosed
	case h.rank == nil:
		return nil, errors.New("an epoch starts before a model was formed")
	case len(h.settings.Placement) != e.Group.Size():
		return nil, fmt.Errorf("the plan places the model on %d ranks, but the group has %d", len(h.settings.Placement), e.Group.Size())
	}
	h.stopEntering()
	var err error
	if h.staged() {
		err = h.rank.JoinStage(e.Group, h.inside, h.settings.Placement)
	} else {
		err = h.rank.Join(e.Group, h.settings.Placement)
	}
	if err == nil {
		err = h.rank.HoldWeights()
	}
	if err != nil {
		return nil, err
	}
	h.epoch, h.joined = e, true
	h.keepSizes(h.rank) // of the layers of its stage
	h.mu.Lock()
	defer h.mu.Unlock()
	h.group, h.report.Epoch = e.Group, e.Number
	return h.settings.Placement, nil
}

// run runs the prepared step and returns its logits and digest. The caller has the turn, and
// the rank has joined. Only the end of the epoch cancels the step, because a rank that
// stopped in the middle would leave the others waiting in a collective.
func (h *resident) run(step model.Step) ([][]float32, cluster.Digest, error) {
	began := time.Now()
	before := overflows(h.rank.LayerStats())
	rows, err := h.rank.Run(h.epoch.Done)
	layers := slices.Clone(h.rank.LayerStats())
	if n := overflows(layers) - before; n > 0 && h.settings.Reduce == parallel.Sum {
		h.repeats.add(Repeat{Kind: InFloat32, Exchanges: n})
	}
	if err != nil {
		return nil, nil, err
	}
	digest := slices.Clone(h.rank.Digest())
	if h.staged() || h.helped() {
		for i, sum := range digest {
			if sum == 0 {
				digest[i] = cluster.NotComputed
			}
		}
	}
	if len(digest) > 0 { // a step without entries may have none
		h.digests.Store(int64(len(digest)))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.report
	if h.number == 0 || !h.helped() || step.Help != nil { // a helper has no part in the others
		r.Steps++
		for _, e := range step.Entries {
			r.Tokens += uint64(len(e.Tokens))
		}
		r.Time += time.Since(began)
	}
	r.Layers, h.exchanges = layers, h.rank.Exchanges
	return rows, digest, nil
}

// overflows returns how many exchanges were repeated in float32, with Sum.
func overflows(layers []parallel.LayerStats) (n uint64) {
	for _, l := range layers {
		n += l.Overflows
	}
	return n
}

// commit commits a step. The caller has the turn.
func (h *resident) commit(s model.Step) {
	if h.entering != nil && slices.Contains(s.Drop, h.entering.id) {
		h.stopEntering()
	}
	h.rank.Commit(s)
}

// staged reports whether the ranks have different layers. The caller has the turn.
func (h *resident) staged() bool { return h.settings.Placement.Staged() }

// helped reports whether rank 1 helps rank 0 with long steps. The caller has the turn.
func (h *resident) helped() bool { return h.settings.Placement.Helped() }

// describe names position i of a digest.
func (h *resident) describe(i int) string {
	if int64(i) == h.digests.Load()-1 {
		return "final hidden state"
	}
	return fmt.Sprintf("layer %d, choice of experts", i)
}

// snapshot returns the current report.
func (h *resident) snapshot() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.report
	r.Memory = h.host.ResidentBytes()
	if h.group != nil {
		r.Group = h.group.Stats()
	}
	if h.exchanges != nil {
		r.Exchanges = h.exchanges()
	}
	return r
}

// close frees the model; ctx bounds the wait for a step in flight.
func (h *resident) close(ctx context.Context) error {
	if err := h.acquire(ctx); err != nil {
		return fmt.Errorf("a step is still running: %w", err)
	}
	defer h.release()
	h.closed, h.joined = true, false
	if h.rank == nil {
		return nil
	}
	h.stopEntering()
	err := h.rank.Close()
	h.rank = nil
	return err
}
