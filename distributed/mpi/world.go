// Package mpi is the data plane over the system's own MPI library, for clusters
// with a launcher, a scheduler and a network that MPI supports best. The library
// is loaded at run time, so that the same program also runs on hosts without one.
//
// Open starts MPI and returns the World of the job; New makes its Transport.
// World.Coordinator agrees on the address of the control connections, so that
// users need not give one.
//
// # Threads
//
// One thread at a time calls MPI (MPI_THREAD_SERIALIZED): the one that holds
// owner.calls. The owner, a thread of its own, starts and ends MPI and makes
// groups. It also runs large operations, because MPI moves data only during calls
// and the caller computes meanwhile. The caller itself begins a small operation,
// and its Wait ends it, because waking another thread takes longer than the
// exchange.
//
// # What is not left to MPI
//
// MPI does not compute the sums, because its order of additions depends on sizes.
// The ranks exchange blocks, and package reduce reduces them in rank order. MPI's
// collective operations are not used after startup either, because they wait
// without a time limit. Messages are started, tested, and abandoned when they
// take too long.
//
// Data passes through memory of the group outside Go's heap, because a transfer
// that has begun cannot be cancelled: if a group fails in the middle of one, MPI
// may write there later.
//
// # Epochs
//
// Each group has its own communicator, which is made when rank 0 knows that every
// rank wants the same epoch. After a failure it is not used again. A world cannot
// add processes, so the job must be restarted when one has died.
package mpi

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"ringmaster/distributed"
)

// Options are the settings of the transport. The zero value is ready to use.
// All ranks must have the same.
type Options struct {
	// Library is the name or path of the MPI library; empty tries the usual
	// names. Only Open uses it.
	Library string
	// Threshold is the length in bytes from which reductions are done as a
	// reduce-scatter and an all-gather; shorter blocks are sent whole to
	// all ranks. Default 256 KiB; < 0 never scatters.
	Threshold int
	// First is the maximum payload of a first message, Piece that of each
	// further one; multiples of 64. Defaults 64 KiB and 1 MiB. MPI counts
	// in int, so neither may reach 2^31.
	First, Piece int
	// Spin is how long MPI is polled without pause before the processor is
	// yielded. Default 50 µs; < 0 naps at once, which helps when there are more
	// ranks than processors.
	Spin time.Duration
}

// mostBytes is the maximum length of a message. It exists because MPI's counts
// are of type int.
const mostBytes = 1 << 30

func (o Options) withDefaults() Options {
	o.Threshold = cmp.Or(o.Threshold, 256<<10)
	if o.First <= 0 {
		o.First = 64 << 10
	}
	if o.Piece <= 0 {
		o.Piece = 1 << 20
	}
	o.First = max(min(o.First, mostBytes)&^63, 64)
	o.Piece = max(min(o.Piece, mostBytes)&^63, 64)
	o.Spin = max(cmp.Or(o.Spin, 50*time.Microsecond), 0)
	return o
}

// scatters reports whether a reduction of n bytes is scattered.
func (o *Options) scatters(n int) bool { return o.Threshold >= 0 && n >= o.Threshold }

// World is the job that the launcher started: processes that can reach each
// other over MPI. Its ranks are the ranks of the groups.
type World struct {
	rank, size int
	host       string
	version    string
	owner      *owner

	// Guarded by owner.calls.
	control unsafe.Pointer // communicator of the control messages
	hello   *inbox         // control messages received; see inbox
	copies  []*copying     // communicators still being made although their epochs were given up

	mu     sync.Mutex
	groups map[*driver]*distributed.Group // open groups
	joins  bool                           // a Connect is in progress
	closed bool
}

// Open loads the library, starts MPI and waits until all processes of the job
// have done so. It can be called once in a process. Errors wrap
// distributed.ErrUnavailable if there is no usable library, otherwise
// distributed.ErrBootstrap.
func Open(ctx context.Context, o Options) (*World, error) {
	library.Lock()
	defer library.Unlock()
	version, err := load(o.Library)
	if err != nil {
		return nil, err
	}
	if library.opened {
		return nil, fmt.Errorf("%w: %w", distributed.ErrBootstrap, errAgain)
	}
	library.opened = true
	w := &World{version: version, owner: newOwner(), groups: map[*driver]*distributed.Group{}}
	started := make(chan error, 1)
	w.owner.post(func() { started <- w.start() })
	select {
	case err = <-started:
	case <-ctx.Done():
		err = fmt.Errorf("MPI has not started: %w", context.Cause(ctx)) // the owner is still waiting for it
	}
	if err != nil {
		w.owner.last(func() {})
		return nil, fmt.Errorf("%w: %s: %w", distributed.ErrBootstrap, version, err)
	}
	return w, nil
}

// start starts MPI; the owner calls it.
func (w *World) start() error {
	var err error
	if w.rank, w.size, err = libInit(); err != nil {
		return err
	}
	if w.host, err = libHost(); err != nil {
		return err
	}
	c, err := w.duplicate(nil)
	if err != nil {
		return err
	}
	never := newFlag()
	if err := w.finishCopy(c, never, time.Minute); err != nil {
		return err
	}
	w.control = c.comm()
	w.hello = newInbox(w)
	w.owner.idle = w.idle
	return nil
}

// idle lets MPI work between operations.
func (w *World) idle() { _ = libIdle(w.control) }

// Rank returns the number of this process in the world.
func (w *World) Rank() int { return w.rank }

// Size returns the number of processes in the world.
func (w *World) Size() int { return w.size }

// Host returns MPI's name of this host.
func (w *World) Host() string { return w.host }

// Version returns the library's name and version, such as "Open MPI v4.1.4".
func (w *World) Version() string { return w.version }

// finalizeLimit bounds MPI_Finalize, which waits for all processes of the job.
const finalizeLimit = 5 * time.Second

// Close ends MPI; open groups fail with distributed.ErrClosed. It waits at most
// five seconds for the other processes and returns an error if they take longer;
// the launcher then sees this process end early.
func (w *World) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	groups := make([]*distributed.Group, 0, len(w.groups))
	for _, g := range w.groups {
		groups = append(groups, g)
	}
	w.mu.Unlock()
	for _, g := range groups {
		g.Fail(distributed.ErrClosed)
	}
	ended := make(chan error, 1)
	if !w.owner.last(func() { ended <- libFinalize() }) {
		return nil
	}
	limit := time.NewTimer(finalizeLimit)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
		return fmt.Errorf("%w: MPI_Finalize did not return within %v, because other processes of the job are still running or were lost", distributed.ErrTimeout, finalizeLimit)
	}
}

// copying is a communicator that is being made. The handle and the request lie
// outside Go's heap.
type copying struct {
	made *unsafe.Pointer
	msg  []message // [1] its request
}

func (c *copying) comm() unsafe.Pointer { return *c.made }

// duplicate begins to duplicate the communicator comm, nil for the world.
func (w *World) duplicate(comm unsafe.Pointer) (*copying, error) {
	c := &copying{made: (*unsafe.Pointer)(allocate(int(unsafe.Sizeof(comm)))), msg: messages(1)}
	if err := libDup(comm, c.made, &c.msg[0]); err != nil {
		return nil, err
	}
	return c, nil
}

// finishCopy waits until a communicator is made, stop is raised or limit has
// passed.
func (w *World) finishCopy(c *copying, stop flag, limit time.Duration) error {
	switch libProgress(nil, c.msg, nil, stop.pointer(), false, 0, int64(limit)) {
	case progressDone:
		return libQuiet(c.comm())
	case progressStopped:
		return errStopped
	case progressLate:
		return fmt.Errorf("%w: MPI has not made a communicator within %v", distributed.ErrTimeout, limit)
	}
	return lastError()
}
