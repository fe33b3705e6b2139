package lockstep

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
)

// host keeps the model of this rank from epoch to epoch. The cluster's
// goroutine loads and joins it, another runs steps: whoever does either holds
// the turn.
type host struct {
	number int // of this rank
	load   Load

	turn chan struct{} // holds a mark while the fields below are in use

	settings Settings
	rank     Rank // nil if none is loaded
	epoch    cluster.Epoch
	joined   bool // rank is in the group of epoch
	closed   bool

	digests atomic.Int64 // length of the last digest, 0 before the first

	mu     sync.Mutex // guards what others may look at, and is never held for long
	info   model.Info // of the first model; later ones must be like it
	loaded bool       // info is set
	report Report
	group  distributed.Group // of the epoch, nil before the first
}

func newHost(number int, load Load) *host {
	return &host{number: number, load: load, turn: make(chan struct{}, 1), report: Report{Rank: number}}
}

// take waits for the turn until ctx ends. A turn that is free is taken in any
// case.
func (h *host) take(ctx context.Context) error {
	if h.tryTake() {
		return nil
	}
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryTake takes the turn if it is free.
func (h *host) tryTake() bool {
	select {
	case h.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (h *host) give() { <-h.turn }

// form gets the model ready for an epoch with the settings of a plan.
func (h *host) form(ctx context.Context, settings []byte) error {
	s, err := ParseSettings(settings)
	if err != nil {
		return err
	}
	if err := h.take(ctx); err != nil {
		return fmt.Errorf("lockstep: a step of the epoch before still runs: %w", err)
	}
	defer h.give()
	h.joined = false
	if h.closed {
		return distributed.ErrClosed
	}
	if h.rank != nil && !h.settings.loadAlike(s) {
		err := h.rank.Close()
		h.rank = nil
		if err != nil {
			return fmt.Errorf("lockstep: closing the model of the plan before: %w", err)
		}
	}
	h.settings = s
	if h.rank != nil {
		return nil
	}
	rank, err := h.load(s, h.number)
	if err != nil {
		return err
	}
	if err := h.keepInfo(rank.Info()); err != nil {
		return errors.Join(err, rank.Close())
	}
	h.rank = rank
	return nil
}

// keepInfo notes what the model is. Others hold on to the first answer, so a
// model that is another cannot take its place.
func (h *host) keepInfo(info model.Info) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loaded && info != h.info {
		return fmt.Errorf("lockstep: the plan asks for a model like %+v, the one before was like %+v; start the program anew", info, h.info)
	}
	h.info, h.loaded = info, true
	return nil
}

// start joins the model to the group of an epoch.
func (h *host) start(e cluster.Epoch) error {
	if err := h.take(e.Done); err != nil {
		return fmt.Errorf("lockstep: a step of the epoch before still runs: %w", err)
	}
	defer h.give()
	h.joined = false
	switch {
	case h.closed:
		return distributed.ErrClosed
	case h.rank == nil:
		return errors.New("lockstep: an epoch starts without a model: none was formed")
	case len(h.settings.Ranges) != e.Group.Size():
		return fmt.Errorf("lockstep: the plan has shares for %d ranks, the group has %d", len(h.settings.Ranges), e.Group.Size())
	}
	if err := h.rank.Join(e.Group, slices.Clone(h.settings.Ranges)); err != nil {
		return err
	}
	h.epoch, h.joined = e, true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.group, h.report.Epoch = e.Group, e.Number
	return nil
}

// run runs a step and sums it up. The caller has the turn and a rank that has
// joined. The step ends with the epoch, and with nothing else: a rank that
// stopped in the middle would leave the others in a collective.
func (h *host) run(step model.Step) ([][]float32, cluster.Digest, error) {
	began := time.Now()
	rows, err := h.rank.Forward(h.epoch.Done, step)
	if err != nil {
		return nil, nil, err
	}
	digest := slices.Clone(h.rank.Digest())
	if len(digest) > 0 { // a step without entries may have none
		h.digests.Store(int64(len(digest)))
	}
	layers := slices.Clone(h.rank.LayerStats())
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.report
	r.Steps++
	for _, e := range step.Entries {
		r.Tokens += uint64(len(e.Tokens))
	}
	r.Time += time.Since(began)
	r.Layers = layers
	return rows, digest, nil
}

// describe names position i of a digest.
func (h *host) describe(i int) string {
	if int64(i) == h.digests.Load()-1 {
		return "final hidden state"
	}
	return fmt.Sprintf("layer %d, choice of experts", i)
}

// snapshot is the report of this moment.
func (h *host) snapshot() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.report
	if h.group != nil {
		r.Group = h.group.Stats()
	}
	return r
}

// close frees the model; ctx bounds the wait for a step under way.
func (h *host) close(ctx context.Context) error {
	if err := h.take(ctx); err != nil {
		return fmt.Errorf("lockstep: a step still runs: %w", err)
	}
	defer h.give()
	h.closed, h.joined = true, false
	if h.rank == nil {
		return nil
	}
	err := h.rank.Close()
	h.rank = nil
	return err
}
