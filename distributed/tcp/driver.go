package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// driver is a mesh of connections. mu guards what the goroutines of a large
// operation share with the one that uses the driver.
type driver struct {
	transport  *Transport
	link       distributed.Link
	rank, size int
	lanes      []*lane // [size], nil at this rank
	credit     int     // bytes that may be sent before the peer has reached the operation
	direct     int     // longest part written and read by the caller
	threshold  int     // bytes from which reductions are scattered, < 0 never
	measured   Calibration
	op         operation
	blocks     [][]byte // [size] arguments of Reduce
	spin       spinner  // how long small operations poll before they sleep

	mu        sync.Mutex
	aborted   bool
	suspicion *distributed.Suspicion // the first one
	left      int                    // goroutines still working on the operation
	reduced   int                    // bytes of the target that have been reduced
	reducing  bool                   // the reducer has work
	waiter    *sync.Cond
	reducer   *sync.Cond
	running   sync.WaitGroup
}

var (
	_ distributed.Driver     = (*driver)(nil)
	_ distributed.Calibrator = (*driver)(nil)

	_ distributed.Retransmitter = (*driver)(nil)
)

// operation is the current operation; the lanes hold what is sent and received.
type operation struct {
	*distributed.Op
	bulk    bool
	scatter bool // in two phases
	inPlace bool // src is dst, and all of it is sent
	reduce  bool
	with    reduce.Op
	src     []byte // this rank's block of the reduction
	target  []byte // where the result goes
	timing  distributed.Timing
}

// newDriver starts the goroutines of a mesh; conns [size] are authenticated.
// inherited is the calibration of the parent, nil if there is none.
func newDriver(t *Transport, l distributed.Link, inherited *Calibration, conns []*socket) (*driver, error) {
	d := &driver{
		transport: t, link: l, rank: l.Rank, size: l.Size,
		credit: leastCredit, direct: t.opts.Direct, threshold: t.opts.Threshold,
		lanes: make([]*lane, l.Size), blocks: make([][]byte, l.Size), spin: newSpinner(t.opts.Spin),
	}
	if inherited != nil {
		d.measured = *inherited
	}
	d.waiter, d.reducer = sync.NewCond(&d.mu), sync.NewCond(&d.mu)
	for p, c := range conns {
		if p == d.rank {
			continue
		}
		lane, err := newLane(d, p, *c)
		if err != nil {
			return nil, err
		}
		d.lanes[p] = lane
	}
	d.each(func(l *lane) {
		d.running.Go(l.sender)
		d.running.Go(l.receiver)
	})
	d.running.Go(func() { d.serve(&d.reducing, d.reducer, d.reduceAll) })
	return d, nil
}

// Start implements distributed.Driver: it plans what each lane moves, writes
// small parts at once and hands large ones to the goroutines.
func (d *driver) Start(op *distributed.Op) error {
	d.op = operation{Op: op}
	d.plan()
	if d.troubled() {
		return nil // Wait reports the error
	}
	for _, l := range d.lanes {
		if l != nil && (d.op.scatter || l.needsReady || l.needsReady2 || len(l.out) > d.direct || l.inLen > d.direct) {
			d.op.bulk = true
		}
	}
	if d.op.bulk {
		d.startBulk()
	} else {
		d.startDirect()
	}
	return nil
}

// Wait implements distributed.Driver. After an Abort the connections are
// closed, so that the goroutines release an operation at once.
func (d *driver) Wait(*distributed.Op) (distributed.Timing, error) {
	ok := false
	if d.op.bulk {
		ok = d.drained()
	} else {
		ok = d.waitDirect()
	}
	if ok {
		d.each(func(l *lane) { l.settle(d.op.scatter) })
		return d.op.timing, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.aborted && d.left > 0 {
		d.waiter.Wait()
	}
	if d.suspicion != nil {
		return d.op.timing, d.suspicion
	}
	return d.op.timing, errAborted
}

// errAborted ends the work of a goroutine when the group has failed.
var errAborted = errors.New("the group has failed")

// Abort implements distributed.Driver. It closes the connections, because that
// wakes every waiter, on this rank and on the others.
func (d *driver) Abort(error) {
	d.mu.Lock()
	d.aborted = true
	d.waiter.Broadcast()
	d.reducer.Broadcast()
	d.each(func(l *lane) {
		l.wake.Broadcast()
		l.feed.Broadcast()
	})
	d.mu.Unlock()
	d.each(func(l *lane) { _ = l.conn.Close() })
}

// Close implements distributed.Driver. Data already sent still arrives, because
// the kernel delivers it after the connection is closed.
func (d *driver) Close() error {
	d.Abort(nil)
	d.running.Wait()
	return nil
}

// Child implements distributed.Driver. The members connect to the listeners
// that they already have, with the child's id and token, so that one transport
// carries any number of groups at once.
func (d *driver) Child(ctx context.Context, c distributed.ChildSpec) (*distributed.Group, error) {
	return d.transport.connect(ctx, c.Link, &d.measured)
}

// Retransmits implements distributed.Retransmitter.
func (d *driver) Retransmits(rank int) int64 {
	n := int64(-1)
	if l := d.lanes[rank]; l != nil {
		if err := l.raw.Control(func(fd uintptr) { n = retransmits(int(fd)) }); err != nil {
			return -1 // closed
		}
	}
	return n
}

// suspect records that something is wrong with a peer. Only the first suspicion
// counts.
func (d *driver) suspect(peer int, err error) {
	d.mu.Lock()
	if d.aborted || d.suspicion != nil {
		d.mu.Unlock()
		return
	}
	d.suspicion = &distributed.Suspicion{Peer: peer, Err: err}
	d.waiter.Broadcast()
	d.mu.Unlock()
	d.link.Suspect(peer, err)
}

func (d *driver) troubled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.aborted || d.suspicion != nil
}

// trouble turns an error of a lane's connection into a suspicion. It suspects
// the lane's peer or, at a deadline, the peer that has not delivered.
func (d *driver) trouble(l *lane, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		peer, who := d.undelivered(l.peer)
		d.suspect(peer, fmt.Errorf("%w: not delivered within %v: %s", distributed.ErrTimeout, d.link.OpTimeout, who))
		return
	}
	d.suspect(l.peer, laneError(err))
}

// laneError translates an error of a connection into one of package
// distributed.
func laneError(err error) error {
	switch {
	case errors.Is(err, distributed.ErrDesync):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: connection closed", distributed.ErrPeerGone)
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return fmt.Errorf("%w: connection lost: %v", distributed.ErrPeerGone, err)
}
