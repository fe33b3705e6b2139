package rdma

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/bringup"
	"ringmaster/distributed/rdma/internal/engine"
	"ringmaster/distributed/rdma/internal/liveness"
	"ringmaster/distributed/rdma/verbs"
)

// driver is a group over rails. If the caller computes during an operation that
// is not small, the driver's own goroutine works on it until Wait. mu guards
// what Abort, the liveness connections and that goroutine share.
type driver struct {
	t         *Transport
	link      distributed.Link
	rails     *bringup.Rails
	eng       *engine.Engine
	side      *distributed.Group
	op        operation
	seq       uint64 // of the last collective operation, as the engine counts
	formed    uint64 // collective operations while the group was formed
	measuring bool   // messages take one rail

	work    chan struct{} // to the worker: it now owns the operation
	ended   chan bool     // from it: whether the operation has succeeded
	look    chan struct{} // asks the port watcher to query the ports
	quit    chan struct{} // ends the worker
	running sync.WaitGroup

	mu        sync.Mutex
	suspicion *distributed.Suspicion // the first one
	aborted   bool
	failed    chan struct{} // closed with aborted
	working   bool          // the worker has an operation
	freed     bool          // the engine was freed
	odd       oddLengths
	departed  []time.Time // [ranks] when a rank said goodbye; zero if it has not
}

var (
	_ distributed.Driver     = (*driver)(nil)
	_ distributed.Calibrator = (*driver)(nil)
)

// operation is the current operation.
type operation struct {
	*distributed.Op
	task   *engine.Task // nil if nothing moves over the rails
	state  state        // of the task; the worker's while it has the operation
	handed bool         // the worker has it, or will send its result to ended
	side   chan error   // result of the part over the side channel, nil if there is none
	peer   int          // of a message over the rails, else -1
	waited bool         // the operation has failed, so the next Wait releases its memory
}

// state is the state of the part over the rails.
type state int

const (
	pending state = iota
	done
	failed
)

// newDriver makes the driver of a group over rails.
func newDriver(t *Transport, l distributed.Link, side *distributed.Group, rails *bringup.Rails) (*driver, error) {
	eng, err := engine.New(engine.Config{Plan: rails.Plan, Rank: l.Rank, Epoch: l.Epoch, Group: rails.Group, Spin: t.opts.Tuning.Spin,
		Force: rails.Rules.Force, Conns: rails.Conns})
	if err != nil {
		return nil, err
	}
	d := &driver{t: t, link: l, rails: rails, eng: eng, side: side, failed: make(chan struct{}), departed: make([]time.Time, l.Size),
		work: make(chan struct{}, 1), ended: make(chan bool, 1), look: make(chan struct{}, 1), quit: make(chan struct{})}
	rails.Liveness.Watch(d.peerEnded)
	d.running.Go(d.worker)
	d.running.Go(func() { rails.WatchDevices(d.quit, d.suspect) })
	d.running.Go(func() { rails.WatchPorts(d.look, d.quit, d.suspect) })
	return d, nil
}

// largeFrom is the length from which the worker gets an asynchronous operation.
// Shorter ones do not need it, because everything has been posted when Start
// returns.
const largeFrom = 128 << 10

// Start is described at distributed.Driver. It posts the receives, and the sends
// that are possible at once.
func (d *driver) Start(op *distributed.Op) error {
	d.op = operation{Op: op, peer: -1}
	o := d.operation(op)
	switch {
	case op.Kind.Message():
		o = d.route(o)
	case op.Kind == distributed.Agree:
		d.agree()
	}
	if o.Kind == 0 { // all of it uses the side channel
		d.op.state = done
		return nil
	}
	if d.stopped() {
		d.op.state = failed
		return nil // Wait reports it
	}
	var err error
	if d.op.task, err = d.eng.Task(o, op.Sizes); err != nil {
		d.op.state, d.op.waited = failed, true // the group calls Wait only after Abort
		return err
	}
	if d.op.task == nil {
		d.op.state = done
		return nil
	}
	d.account(d.eng.Begin(d.op.task, d.seq, op.Src, op.Dst))
	if d.op.state == pending && op.Async && d.op.task.Bytes > largeFrom {
		d.op.handed = true
		d.mu.Lock()
		d.working = true
		d.mu.Unlock()
		d.work <- struct{}{}
	}
	return nil
}

// operation returns what the engine must do for op.
func (d *driver) operation(op *distributed.Op) engine.Operation {
	o := engine.Operation{Kind: op.Kind, DType: op.DType, To: -1, From: -1}
	if op.Seq > 0 {
		d.seq = d.formed + op.Seq
	}
	switch op.Kind {
	case distributed.AllSum, distributed.AllMax, distributed.AllMin, distributed.AllGather:
		o.Bytes = int64(len(op.Src))
	case distributed.AllGatherV, distributed.ReduceScatter, distributed.Gather:
		if op.Sizes == nil {
			o.Bytes = int64(len(op.Dst))
			break
		}
		o.Root = op.Root
		o.Extra = hash(op.Sizes) + uint64(op.Root)
	case distributed.Broadcast:
		o.Bytes, o.Root, o.Extra = int64(len(op.Dst)), op.Root, uint64(op.Root)+1
	}
	return o
}

// hash returns FNV-1a of the sizes of parts.
func hash(sizes []int) uint64 {
	h := uint64(14695981039346656037)
	for _, n := range sizes {
		for k := 0; k < 64; k += 8 {
			h = (h ^ uint64(n)>>k&0xff) * 1099511628211
		}
	}
	return h
}

// slice is how long the engine works before drive checks the deadline again.
const slice = 10 * time.Millisecond

// lookEvery is how often the ports are queried during a longer operation. It is
// rare enough to cost nothing, and well before any deadline.
const lookEvery = time.Second

// account records the result of a run of the engine.
func (d *driver) account(r engine.Result) {
	if r != engine.Again {
		d.countOddLengths()
	}
	switch r {
	case engine.Done:
		d.op.state = done
		sent, received := d.op.task.Moved()
		d.op.Sent(sent)
		d.op.Received(received)
	case engine.Broken:
		d.op.state = failed
		d.suspect(d.eng.Fault(d.op.task, d.op.Kind.String(), d.op.Number))
	case engine.Stopped:
		d.op.state = failed
	}
}

// drive works on the operation to its end. It reports whether the operation
// succeeded; otherwise a suspicion exists, or the group was aborted.
func (d *driver) drive() bool {
	looked := d.op.Begun
	for d.op.state == pending {
		now := time.Now()
		left := d.op.Deadline.Sub(now)
		if left <= 0 {
			d.op.state = failed
			d.late()
			break
		}
		if now.Sub(looked) >= lookEvery {
			looked = now
			select {
			case d.look <- struct{}{}:
			default: // the last query has not ended
			}
		}
		d.account(d.eng.Run(d.op.task, d.op.Src, d.op.Dst, min(left, slice)))
		if d.op.state == pending && d.peerLeft() {
			d.op.state = failed
		}
	}
	return d.op.state == done
}

// worker runs operations while their caller computes.
func (d *driver) worker() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case <-d.work:
			ok := d.drive()
			d.mu.Lock()
			d.working = false
			d.mu.Unlock()
			d.ended <- ok
		case <-d.quit:
			return
		}
	}
}

// errAborted is the error of an operation that Abort has ended.
var errAborted = errors.New("the group has failed")

// Wait is described at distributed.Driver.
func (d *driver) Wait(op *distributed.Op) (distributed.Timing, error) {
	ok := false
	if d.op.handed {
		ok = <-d.ended
		d.op.handed = false
	} else {
		ok = d.drive()
	}
	if d.op.side != nil && (ok || d.op.waited) {
		ok = <-d.op.side == nil && ok
		d.op.side = nil
	}
	d.op.waited = true
	if ok && !d.lost() {
		return d.timing(), nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suspicion != nil {
		return distributed.Timing{}, d.suspicion
	}
	return distributed.Timing{}, errAborted
}

// timing returns when data could move, which is when the last header of a peer
// was received.
func (d *driver) timing() distributed.Timing {
	if d.op.task != nil {
		if moving, ok := d.op.task.SinceHeader(); ok {
			return distributed.Timing{Heard: time.Now().Add(-moving)}
		}
	}
	return distributed.Timing{}
}

// Abort is described at distributed.Driver. It first sends the other ranks the
// cause, so that they do not see the end of another connection before it.
func (d *driver) Abort(cause error) {
	d.stop(nil)
	reason := liveness.GaveUp
	switch {
	case errors.Is(cause, distributed.ErrClosed):
		reason = liveness.Goodbye
	case errors.Is(cause, distributed.ErrDesync):
		reason = liveness.Desynced
	}
	d.rails.Liveness.End(d.link.Culprit(cause), reason, cause.Error())
	d.side.Fail(cause)
}

// Close is described at distributed.Driver. It lets pending sends complete, then
// frees queue pairs and memory on a goroutine. It waits for that no longer than
// for a call of the driver.
func (d *driver) Close() error {
	d.mu.Lock()
	orderly := !d.aborted && d.suspicion == nil && !d.working
	d.mu.Unlock()
	if orderly {
		d.eng.Drain(drainLimit)
	}
	d.Abort(distributed.ErrClosed)
	close(d.quit)
	d.running.Wait()
	d.rails.Liveness.Wait()
	_ = d.side.Close()
	d.mu.Lock()
	d.freed = true
	d.mu.Unlock()
	gone := make(chan error, 1)
	go func() {
		err := d.rails.Destroy()
		d.eng.Free()
		gone <- err
	}()
	timer := time.NewTimer(verbs.DefaultLimit)
	defer timer.Stop()
	select {
	case err := <-gone:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: rdma: the driver did not free the queue pairs within %v; they are left behind", distributed.ErrTimeout, verbs.DefaultLimit)
	}
}
