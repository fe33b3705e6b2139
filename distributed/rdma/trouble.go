package rdma

import (
	"errors"
	"fmt"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/engine"
	"ringmaster/distributed/rdma/liveness"
)

// How a group ends: what is suspected, who is told, and the cause that stays.

// enableSuspicions: the group stands, and from here on the link's owner is told of
// suspicions.
func (g *group) enableSuspicions() {
	g.mu.Lock()
	g.quiet = false
	s := g.suspicion
	g.mu.Unlock()
	if s != nil && !g.isChild() {
		g.tell(s.Peer, s.Err)
	}
}

func (g *group) isChild() bool { return g.split.World != nil }

// Fail is described at distributed.Group. The other ranks are told why, before
// they can see the end of another connection.
func (g *group) Fail(cause error) {
	if cause == nil {
		cause = distributed.ErrClosed
	}
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	close(g.failed)
	g.eng.Stop()
	g.mu.Unlock()
	reason := liveness.GaveUp
	switch {
	case errors.Is(cause, distributed.ErrClosed):
		reason = liveness.Goodbye
	case errors.Is(cause, distributed.ErrDesync):
		reason = liveness.Desynced
	}
	g.liveness.End(g.split.Culprit(cause), reason, cause.Error())
	g.side.Fail(cause)
	g.split.Fail(cause)
}

// gone takes the notice of a peer whose liveness connection has ended. A rank that has closed the group is
// suspected only when it is needed again: its part of the operation under way is
// done, or it will be missed.
func (g *group) gone(n liveness.Notice) {
	kind := distributed.ErrPeerGone
	switch n.Reason {
	case liveness.Goodbye:
		g.mu.Lock()
		g.departed[n.Peer] = time.Now()
		g.mu.Unlock()
		return
	case liveness.Desynced:
		kind = distributed.ErrDesync
	}
	if n.Culprit != n.Peer && n.Culprit != g.rank && n.Culprit >= 0 && n.Culprit < g.size {
		g.suspect(n.Culprit, fmt.Errorf("%w: rank %d says: %s", kind, n.Peer, n.Text))
		return
	}
	text := closedText
	if n.Text != "" {
		text = "it gave up: " + n.Text
	}
	g.suspect(n.Peer, fmt.Errorf("%w: %s", kind, text))
}

const closedText = "connection closed"

// goodbyeGrace is how long after a rank's goodbye its messages may still arrive.
const goodbyeGrace = 50 * time.Millisecond

// peerLeft suspects a rank that has closed the group though the task still needs
// it. It tells whether there is one.
func (g *group) peerLeft(t *engine.Task) bool {
	peer := -1
	g.mu.Lock()
	for p, at := range g.departed {
		if !at.IsZero() && time.Since(at) > goodbyeGrace && t.Needs(p) {
			peer = p
			break
		}
	}
	g.mu.Unlock()
	if peer >= 0 {
		g.suspect(peer, fmt.Errorf("%w: %s", distributed.ErrPeerGone, closedText))
	}
	return peer >= 0
}

// lost tells whether a message to or from a rank must count as lost although the
// queue pair has taken it: one without acknowledgements lets messages to a dead
// rank go.
func (g *group) lost() bool {
	g.mu.Lock()
	hit := g.suspicion != nil && g.op.peer >= 0 && g.suspicion.Peer == g.op.peer
	to := g.op.to
	late := to >= 0 && !g.departed[to].IsZero() && g.departed[to].Before(g.op.begun)
	g.mu.Unlock()
	if late && !hit {
		g.suspect(to, fmt.Errorf("%w: %s", distributed.ErrPeerGone, closedText))
	}
	return hit || late
}

// suspect records that something is wrong with a peer, -1 for nobody in
// particular. Only the first one counts, and none after a failure. What an idle
// child has seen is told when an operation meets it: the members of a child end
// it one after the other, and of a death the parent's own liveness connection tells.
func (g *group) suspect(peer int, err error) {
	g.mu.Lock()
	if g.cause != nil || g.suspicion != nil {
		g.mu.Unlock()
		return
	}
	s := &distributed.OpError{Op: "idle", Rank: g.rank, Peer: peer, World: g.split.World, Err: err}
	if g.active {
		s.Op, s.Seq, s.Elapsed = g.op.name, g.op.number, time.Since(g.op.begun)
	}
	if peer >= 0 {
		s.Addr = g.link.Addrs[peer]
	}
	g.suspicion, g.suspectAt = s, time.Now()
	tell := g.active || !g.isChild()
	g.eng.Stop()
	g.mu.Unlock()
	if tell {
		g.tell(peer, err)
	}
}

// tell passes a suspicion of this group, or of a child, on to the owner of the
// link: once.
func (g *group) tell(peer int, err error) {
	g.mu.Lock()
	tell := !g.quiet && !g.told && g.cause == nil
	g.told = g.told || tell
	g.mu.Unlock()
	if tell && g.link.Suspect != nil {
		g.link.Suspect(peer, err)
	}
}

func (g *group) troubled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause != nil || g.suspicion != nil
}

// verdict waits for the cause of the failure after a suspicion: Fail with the
// verdict of all, or the suspicion itself when that does not come in time.
func (g *group) verdict() {
	g.mu.Lock()
	s, quiet := g.suspicion, g.quiet
	if !g.told {
		g.suspectAt = time.Now() // nobody could think about it before
	}
	at := g.suspectAt
	g.mu.Unlock()
	if s == nil {
		return
	}
	g.tell(s.Peer, s.Err)
	if !quiet && g.link.VerdictTimeout > 0 {
		timer := time.NewTimer(time.Until(at.Add(g.link.VerdictTimeout)))
		defer timer.Stop()
		select {
		case <-g.failed:
		case <-timer.C:
		}
	}
	if s.Op == "idle" { // it is the operation under way that fails
		x := *s
		x.Op, x.Seq, x.Elapsed = g.op.name, g.op.number, time.Since(g.op.begun)
		s = &x
	}
	g.Fail(s)
}

// wrap makes the error of the operation around a cause.
func (g *group) wrap(cause error) error {
	if e, ok := cause.(*distributed.OpError); ok {
		return e // the operation that failed; later ones return the same
	}
	return &distributed.OpError{Op: g.op.name, Seq: g.op.number, Rank: g.rank, Peer: g.split.Culprit(cause), World: g.split.World,
		Elapsed: time.Since(g.op.begun), Err: cause}
}
