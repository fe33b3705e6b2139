package rdma

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/engine"
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

// launch begins the task of the operation: receives are posted, and whatever can
// be sent at once. What is left of a large operation is given to the worker if
// somebody will Wait for it later.
func (g *group) launch(later bool) {
	t := g.op.task
	if t == nil {
		g.op.done = true
		return
	}
	if g.troubled() || !g.enter() {
		return
	}
	result := g.eng.Begin(t, g.seq, g.op.src, g.op.dst)
	switch result {
	case engine.Done:
		g.op.done = true
		g.account(t)
	case engine.Broken:
		g.broken(t)
	case engine.Again:
		g.op.runs = true
	}
	g.leave()
	if result == engine.Again && later && t.Bytes > largeFrom {
		g.op.handed = true
		g.work <- struct{}{}
	}
}

// account counts the bytes of a task, when it has ended.
func (g *group) account(t *engine.Task) {
	sent, received := t.Moved()
	g.sent.Add(sent)
	g.received.Add(received)
}

// drive works on the operation to its end. It tells whether it ended well; if
// not, there is a suspicion or a cause.
func (g *group) drive() bool {
	if g.op.done {
		return true
	}
	t := g.op.task
	if !g.op.runs || !g.enter() {
		return false
	}
	defer g.leave()
	for {
		left := time.Until(g.op.deadline)
		if left <= 0 {
			g.late(t)
			return false
		}
		switch g.eng.Run(t, g.op.src, g.op.dst, min(left, slice)) {
		case engine.Done:
			g.account(t)
			g.op.done = true
			return true
		case engine.Stopped:
			return false
		case engine.Broken:
			g.broken(t)
			return false
		}
		if g.peerLeft(t) {
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
func (g *group) late(t *engine.Task) {
	peer := -1
	var who []int
	for _, p := range t.Silent() {
		if !slices.Contains(who, p) {
			who = append(who, p)
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
func (g *group) broken(t *engine.Task) {
	peer, err := g.eng.Fault(t, g.op.name, g.op.number)
	g.suspect(peer, err)
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
	if t := g.op.task; t != nil && g.enter() {
		moving, ok := t.SinceHeader()
		g.leave()
		if ok {
			waited = min(max(total-moving, 0), total)
		}
	}
	g.waiting.Add(int64(waited))
	g.wire.Add(int64(total - waited))
}
