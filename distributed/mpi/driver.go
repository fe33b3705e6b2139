package mpi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"ringmaster/distributed"
)

// driver uses a communicator, or some ranks of one with two tags of their own.
// The owner runs its operations.
type driver struct {
	world      *World
	link       distributed.Link
	opts       Options
	rank, size int
	ranks      []int32 // [Size] in the communicator
	tag        int32   // tag of data; tag+1 is that of goodbyes
	tags       *tags   // shared by all groups of the communicator

	// Guarded by owner.calls.
	comm    unsafe.Pointer
	sets    [2]round   // the current round and the next
	goodbye []message  // [1] the receive for a peer's goodbye
	gone    []*parting // [Size] goodbyes received from peers
	left    bool       // this rank has said its own goodbye

	// Used by the goroutine that uses the group.
	op    *distributed.Op
	busy  bool       // the operation has not ended
	small *exchange  // the operation, if the caller runs it itself
	done  chan error // otherwise the owner reports its result here
	heard time.Time  // when the first message of the last peer was received

	stop flag // raised by Abort, polled by the owner

	mu     sync.Mutex
	cause  error         // of Abort, nil before
	parted chan struct{} // closed when the owner has left the communicator
}

var (
	_ distributed.Driver     = (*driver)(nil)
	_ distributed.Calibrator = (*driver)(nil)
	_ distributed.Offerer    = (*driver)(nil)
)

// parting is why and when a peer left.
type parting struct {
	why string
	at  time.Time
}

// newDriver makes the driver of a communicator, or of some of its ranks.
func newDriver(w *World, l distributed.Link, o Options, comm unsafe.Pointer, ranks []int32, tag int32, t *tags) *driver {
	d := &driver{
		ranks: ranks, tag: tag, tags: t,
		world: w, link: l, opts: o, rank: l.Rank, size: l.Size, comm: comm,
		goodbye: messages(1), gone: make([]*parting, l.Size), done: make(chan error, 1),
		stop: newFlag(), parted: make(chan struct{}),
	}
	for i := range d.sets {
		d.sets[i] = newRound(ranks, tag)
	}
	d.goodbye[0].data = allocate(goodbyeSize)
	d.expectGoodbye()
	return d
}

// Describe implements distributed.Driver.
func (d *driver) Describe() distributed.Description {
	return distributed.Description{Kind: "mpi", Topology: fmt.Sprintf("%s, %d ranks", d.world.version, d.size)}
}

// proofSize is the length of the proof that Calibrate compares.
const proofSize = 32

// Calibrate verifies, over the communicator, that all ranks mean the same
// group.
func (d *driver) Calibrate(ctx context.Context, g *distributed.Group) error {
	mine := proof(&d.link)
	all := make([]byte, d.size*proofSize)
	if err := g.AllGather(ctx, all, mine); err != nil {
		return err
	}
	for p := range d.size {
		if !bytes.Equal(all[p*proofSize:][:proofSize], mine) {
			return trouble(&d.link, p, fmt.Errorf("%w: it is in another group", distributed.ErrDesync))
		}
	}
	return nil
}

// Start implements distributed.Driver. It begins a single exchange of a single
// round itself and lets the caller's Wait end it, because that saves waking a
// thread twice. It hands anything larger to the owner, so that it proceeds
// while the caller computes.
func (d *driver) Start(op *distributed.Op) error {
	d.op, d.busy, d.heard = op, true, time.Time{}
	xs := d.plan(op)
	if len(xs) == 1 && d.rounds(xs[0]) == 1 {
		d.small = xs[0]
		d.world.owner.calls.Lock()
		defer d.world.owner.calls.Unlock()
		if !d.left {
			d.load(d.small, 0)
			d.post(&d.sets[0])
		}
		return nil
	}
	d.small = nil
	if !d.world.owner.post(func() { d.done <- d.all(xs) }) {
		d.done <- distributed.ErrClosed
	}
	return nil
}

// all runs the exchanges of an operation that was handed to the owner.
func (d *driver) all(xs []*exchange) error {
	err := d.standing()
	var heard time.Time
	for i, x := range xs {
		if err != nil {
			break
		}
		err = d.run(x)
		if i == 0 {
			heard = d.heard
		}
	}
	d.heard = heard
	d.suspect(err)
	return err
}

// rest ends an exchange that Start has begun.
func (d *driver) rest(x *exchange) error {
	d.world.owner.calls.Lock()
	err := d.standing()
	if !d.left { // otherwise its memory has been freed
		if err == nil {
			err = d.await(&d.sets[0], x)
		}
		if err == nil {
			d.heard = time.Now()
			d.consume(x, 0)
		}
	}
	d.world.owner.calls.Unlock()
	d.suspect(err)
	return err
}

// Wait implements distributed.Driver. The caller's memory is free when the
// first Wait has returned, because MPI writes only to memory of the driver.
func (d *driver) Wait(*distributed.Op) (distributed.Timing, error) {
	if !d.busy {
		return distributed.Timing{}, errStopped
	}
	d.busy = false
	var err error
	if d.small != nil {
		err = d.rest(d.small)
	} else {
		err = <-d.done // the owner's waits are bounded
	}
	return distributed.Timing{Heard: d.heard}, err
}

// Abort implements distributed.Driver. The owner says goodbye to the other
// ranks and leaves the communicator.
func (d *driver) Abort(cause error) {
	d.mu.Lock()
	if d.cause != nil {
		d.mu.Unlock()
		return
	}
	d.cause = cause
	d.mu.Unlock()
	d.stop.raise()
	if !d.world.owner.post(d.depart) {
		close(d.parted) // MPI has ended
	}
}

// standing returns the cause if the driver was aborted, else nil.
func (d *driver) standing() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// departLimit bounds how long Close waits for the owner.
const departLimit = 2 * time.Second

// Close implements distributed.Driver.
func (d *driver) Close() error {
	d.Abort(distributed.ErrClosed)
	limit := time.NewTimer(departLimit)
	defer limit.Stop()
	select {
	case <-d.parted:
		d.world.mu.Lock()
		delete(d.world.groups, d)
		d.world.mu.Unlock()
		return nil
	case <-limit.C:
		return fmt.Errorf("%w: MPI did not release the group of epoch %d within %v", distributed.ErrTimeout, d.link.Epoch, departLimit)
	}
}

// suspect informs the group at once when a peer is to blame, because the caller
// may compute for a long time before it waits.
func (d *driver) suspect(err error) {
	if s, ok := errors.AsType[*distributed.Suspicion](err); ok {
		d.link.Suspect(s.Peer, s.Err)
	}
}

// late returns the error for an operation that has run out of time.
func (d *driver) late(set *round) error {
	first := -1
	var silent, deaf []string
	for i := 1; i < d.size; i++ {
		p := (d.rank + i) % d.size
		in, out := set.waitsFor(p)
		if (in || out) && first < 0 {
			first = p
		}
		switch who := fmt.Sprintf("%s at %s", d.link.Name(p), d.link.Addrs[p]); {
		case in:
			silent = append(silent, who)
		case out:
			deaf = append(deaf, who)
		}
	}
	var what []string
	if len(silent) > 0 {
		what = append(what, "no data from "+strings.Join(silent, ", "))
	}
	if len(deaf) > 0 {
		what = append(what, "not received by "+strings.Join(deaf, ", "))
	}
	return &distributed.Suspicion{Peer: first,
		Err: fmt.Errorf("%w: not completed within %v: %s", distributed.ErrTimeout, d.link.OpTimeout, strings.Join(what, "; "))}
}

// A child uses the communicator of its parent, with two tags of its own. A
// communicator of its own would be worse, because MPI_Comm_split and
// MPI_Comm_create_group wait without a time limit, MPI_Comm_idup needs all
// ranks of the communicator, including those outside a child that is being
// split, and a failed communicator leaks its memory.
//
// The members of a child use the greatest of the first free tags that they
// offer, so that no two ranks ever share a tag in two groups.

// tags allocates the tags of a communicator on this rank.
type tags struct {
	mu   sync.Mutex
	next int32 // the first tag that no group of this rank uses
}

// mostTag is the greatest tag that every MPI supports, minus the one that idle
// probes for.
const mostTag = 32766

// everyRank returns the ranks of a group that has a communicator of its own.
func everyRank(size int) []int32 {
	ranks := make([]int32, size)
	for r := range ranks {
		ranks[r] = int32(r)
	}
	return ranks
}

// Offer returns the first tag that is free on this rank.
func (d *driver) Offer() []byte {
	d.tags.mu.Lock()
	defer d.tags.mu.Unlock()
	return binary.LittleEndian.AppendUint32(nil, uint32(d.tags.next))
}

// Child implements distributed.Driver.
func (d *driver) Child(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error) {
	return distributed.Form(ctx, c.Link, func(_ context.Context, l distributed.Link) (distributed.Driver, error) {
		ranks := make([]int32, l.Size)
		tag := uint32(0)
		for i, r := range c.Members {
			ranks[i] = d.ranks[r]
			if len(c.Offers[i]) != 4 {
				return nil, fmt.Errorf("%w: rank %d offers no tag", distributed.ErrDesync, r)
			}
			tag = max(tag, binary.LittleEndian.Uint32(c.Offers[i]))
		}
		if tag+tagGoodbye-tagData > mostTag {
			return nil, fmt.Errorf("%w: %d groups were split off in this epoch, and MPI has no tags for more", distributed.ErrUnavailable, tag/2)
		}
		d.tags.mu.Lock()
		d.tags.next = max(d.tags.next, int32(tag)+2)
		d.tags.mu.Unlock()
		return newDriver(d.world, l, d.opts, d.comm, ranks, int32(tag), d.tags), nil
	})
}
