package rdma

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// slice is how long the engine works before it comes back to look at the
// deadline.
const slice = 10 * time.Millisecond

// enter takes the engine, unless the group has failed; leave gives it back.
// Close frees nothing while somebody is in.
func (g *group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil || g.closed {
		return false
	}
	g.engine = true
	return true
}

func (g *group) leave() {
	g.mu.Lock()
	g.engine = false
	g.idle.Broadcast()
	g.mu.Unlock()
}

// launch begins the job of the operation: receives are posted, and whatever can
// be sent at once. What is left of a large operation is given to the worker if
// somebody will Wait for it later.
func (g *group) launch(later bool) {
	j := g.op.job
	if j == nil {
		g.op.done = true
		return
	}
	if g.troubled() || !g.enter() {
		return
	}
	code := j.begin(g.seq, &g.scratch, g.flag)
	if code == runDone {
		code = g.step(j, 0)
	}
	switch code {
	case runDone:
		g.op.done = true
		g.account(j)
	case runBroken:
		g.broken(j)
	case runAgain:
		g.op.runs = true
	}
	g.leave()
	if code == runAgain && later && j.large {
		g.op.handed = true
		g.work <- struct{}{}
	}
}

// step runs the engine, reducing what it leaves to Go.
func (g *group) step(j *job, limit time.Duration) int {
	code := j.run(g.op.src, g.op.dst, limit)
	for code == runReduce {
		if code = j.reduce(g.op.src, g.op.dst); code == runDone {
			code = j.run(g.op.src, g.op.dst, limit)
		}
	}
	return code
}

// account counts the bytes of a job, when it has ended.
func (g *group) account(j *job) {
	sent, received, _, _ := j.counts()
	g.sent.Add(int64(sent))
	g.received.Add(int64(received))
}

// drive works on the operation to its end. It tells whether it ended well; if
// not, there is a suspicion or a cause.
func (g *group) drive() bool {
	if g.op.done {
		return true
	}
	j := g.op.job
	if !g.op.runs || !g.enter() {
		return false
	}
	defer g.leave()
	for {
		left := time.Until(g.op.deadline)
		if left <= 0 {
			g.late(j)
			return false
		}
		switch g.step(j, min(left, slice)) {
		case runDone:
			g.account(j)
			g.op.done = true
			return true
		case runStopped:
			return false
		case runBroken:
			g.broken(j)
			return false
		}
		if g.deserted(j) {
			return false
		}
	}
}

// worker runs operations that were started while their caller computes.
func (g *group) worker() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case <-g.work:
			g.ended <- g.drive()
		case <-g.quit:
			return
		}
	}
}

// late suspects the first rank that has not delivered.
func (g *group) late(j *job) {
	silent := j.silent()
	peer := -1
	var who []int
	for _, e := range silent {
		if !slices.Contains(who, e.peer) {
			who = append(who, e.peer)
		}
	}
	slices.Sort(who)
	text := "nobody in particular"
	for i, p := range who {
		if i == 0 {
			peer, text = p, ""
		} else {
			text += ", "
		}
		text += fmt.Sprintf("rank %d at %s", p, g.link.Addrs[p])
	}
	g.suspect(peer, fmt.Errorf("%w: not delivered within %v: %s", distributed.ErrTimeout, g.link.OpTimeout, text))
}

// broken says what the engine has met, and with whom.
func (g *group) broken(j *job) {
	f := j.fault()
	if f.kind == failCompletion && f.wc.Status == verbs.StatusFlush {
		// A flush is an echo: look for what it is the echo of.
		if cause, ok := scan(g.ends, scanLimit); ok {
			f = cause
		}
	}
	g.suspect(f.end.peer, g.faultError(f))
}

func (g *group) faultError(f fault) error {
	e := f.end
	where := fmt.Sprintf("rail %d (%s)", e.index, e.device)
	switch f.kind {
	case failCompletion:
		err := verbs.NewCompletionError(f.wc)
		err.Op, err.Seq, err.Rank, err.Peer, err.Rail, err.Device = g.op.name, g.op.number, g.rank, e.peer, e.index, e.device
		switch f.wc.Status {
		case verbs.StatusRetryExc, verbs.StatusFlush:
			return fmt.Errorf("%w: %w", distributed.ErrPeerGone, err)
		case verbs.StatusRemInv: // the peer has posted for a message of another operation
			return fmt.Errorf("%w: %w", distributed.ErrDesync, err)
		}
		return err
	case failPoll:
		return fmt.Errorf("%s: %w", where, &verbs.PollError{Device: e.device, Result: f.got, Asked: 16})
	case failPostSend, failPostRecv:
		call := "post_send"
		if f.kind == failPostRecv {
			call = "post_recv"
		}
		return fmt.Errorf("%s: %w", where, &verbs.PostError{Call: call, Device: e.device, QPN: e.qp.Num(), Asked: 1, Errno: syscall.Errno(f.errno)})
	case failHead:
		return fmt.Errorf("%w: rank %d does %v, rank %d does %v", distributed.ErrDesync, e.peer, f.head, g.rank, f.expected)
	case failStale:
		return fmt.Errorf("%w: %s: a completion that nothing waits for (wr_id %#x): of another operation, or a second one", distributed.ErrDesync, where, f.wc.ID)
	case failLost:
		return fmt.Errorf("%w: %s: message %d came where message %d was due: one of rank %d was lost on the way", distributed.ErrDesync, where, f.got, f.want, e.peer)
	case failLength:
		return fmt.Errorf("%w: %s: a message of %d bytes where %d were expected", distributed.ErrDesync, where, f.wc.ByteLen, f.want)
	}
	return fmt.Errorf("%w: %s: fault %d", distributed.ErrDesync, where, f.kind)
}

// String says what a rank is doing.
func (h head) String() string {
	name := fmt.Sprintf("operation %d", h.op)
	if int(h.op) < len(opNames) && h.op > 0 {
		name = opNames[h.op]
	}
	s := fmt.Sprintf("%s (collective %d) of %d bytes", name, h.seq, h.bytes)
	if h.dtype != noDType {
		s += fmt.Sprintf(" of %v", h.dtype)
	}
	if h.extra != 0 {
		s += fmt.Sprintf(" [%x]", h.extra)
	}
	return fmt.Sprintf("%s, from rank %d to rank %d on rail %d, epoch %d", s, h.from, h.to, h.rail, h.epoch)
}

// finish waits for the end of the operation under way.
func (g *group) finish() error {
	if !g.busy.Load() {
		return &distributed.OpError{Op: "wait", Rank: g.rank, Peer: -1, World: g.split.World,
			Err: fmt.Errorf("%w: Wait was called before", distributed.ErrArgument)}
	}
	entered := time.Now()
	ok := false
	if g.op.handed {
		select {
		case ok = <-g.ended:
		case <-g.quit:
		}
	} else {
		ok = g.drive()
	}
	side := g.op.side
	if ok && side != nil {
		ok = <-side == nil
		side = nil
	}
	if ok {
		ok = !g.lost()
	}
	if !ok {
		g.verdict()
		g.mu.Lock()
		cause, closed := g.cause, g.closed
		g.mu.Unlock()
		switch {
		case cause != nil:
		case closed: // Close has begun, and lets what was sent leave before it fails
			cause = distributed.ErrClosed
		default: // the flag was set without a reason: cannot be
			cause = distributed.ErrDesync
			g.Fail(cause)
		}
		if side != nil {
			<-side // it has the caller's memory
		}
		err := g.wrap(cause)
		g.release()
		return err
	}
	g.clock(entered)
	g.ops.Add(1)
	g.release()
	return nil
}

// clock shares the time of Wait between waiting and moving.
func (g *group) clock(entered time.Time) {
	total := time.Since(entered)
	waited := time.Duration(0)
	if j := g.op.job; j != nil && g.enter() {
		_, _, heard, now := j.counts()
		g.leave()
		if heard > 0 {
			waited = min(max(total-time.Duration(now-heard), 0), total)
		}
	}
	g.waiting.Add(int64(waited))
	g.wire.Add(int64(total - waited))
}
