package rdma

import (
	"fmt"
	"slices"
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/internal/liveness"
)

// Suspicions: what failed, and which rank is suspected.

// suspect records that something is wrong with a peer, -1 for no particular one,
// and stops the current operation. Only the first suspicion counts.
func (d *driver) suspect(peer int, err error) {
	if d.stop(&distributed.Suspicion{Peer: peer, Err: err}) {
		d.link.Suspect(peer, err)
	}
}

// stop ends the work of the engine because of a suspicion, or, with nil, because
// of an Abort. It returns false if the driver had already stopped.
func (d *driver) stop(s *distributed.Suspicion) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.aborted || s != nil && d.suspicion != nil {
		return false
	}
	if s != nil {
		d.suspicion = s
	} else {
		d.aborted = true
		close(d.failed)
	}
	if !d.freed {
		d.eng.Stop()
	}
	return true
}

func (d *driver) stopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.aborted || d.suspicion != nil
}

// peerEnded handles the notice of a peer after the end of its liveness
// connection. A rank that closed the group is suspected only when it is needed
// again, because its part of the current operation may be done.
func (d *driver) peerEnded(n liveness.Notice) {
	kind := distributed.ErrPeerGone
	switch n.Reason {
	case liveness.Goodbye:
		d.mu.Lock()
		d.departed[n.Peer] = time.Now()
		d.mu.Unlock()
		return
	case liveness.Desynced:
		kind = distributed.ErrDesync
	}
	if n.Culprit != n.Peer && n.Culprit != d.link.Rank && n.Culprit >= 0 && n.Culprit < d.link.Size {
		d.suspect(n.Culprit, fmt.Errorf("%w: %s reports: %s", kind, d.link.Name(n.Peer), n.Text))
		return
	}
	text := closedText
	if n.Text != "" {
		text = "it gave up: " + n.Text
	}
	d.suspect(n.Peer, fmt.Errorf("%w: %s", kind, text))
}

const closedText = "connection closed"

// goodbyeGrace is how long after a rank's goodbye its messages may still arrive.
const goodbyeGrace = 50 * time.Millisecond

// peerLeft suspects a rank that has closed the group although the operation still
// needs it. It reports whether it found one.
func (d *driver) peerLeft() bool {
	peer := -1
	d.mu.Lock()
	for p, at := range d.departed {
		if !at.IsZero() && time.Since(at) > goodbyeGrace && d.op.task.Needs(p) {
			peer = p
			break
		}
	}
	d.mu.Unlock()
	if peer >= 0 {
		d.suspect(peer, fmt.Errorf("%w: %s", distributed.ErrPeerGone, closedText))
	}
	return peer >= 0
}

// oddLengths counts messages that have the right header or tag but a completion
// with another length.
type oddLengths struct {
	count int64
	last  string    // rail, peer, lengths of the last one
	told  time.Time // when Report last received it
}

// oddLengthsEvery is the minimum interval between two reports of them.
const oddLengthsEvery = time.Minute

// countOddLengths adds those of the current task.
func (d *driver) countOddLengths() {
	n, c, stated, expected := d.op.task.OddLengths()
	if n == 0 {
		return
	}
	d.mu.Lock()
	d.odd.count += n
	d.odd.last = fmt.Sprintf("the last from rank %d over rail %d (%s): %d bytes stated, %d received", c.Peer, c.Rail, c.Device, stated, expected)
	text, tell := d.odd.text(), time.Since(d.odd.told) >= oddLengthsEvery
	if tell {
		d.odd.told = time.Now()
	}
	d.mu.Unlock()
	if tell {
		d.t.opts.Report(text)
	}
}

// text is a description for people, "" if the count is zero.
func (o *oddLengths) text() string {
	if o.count == 0 {
		return ""
	}
	return fmt.Sprintf("completions stated a wrong length (byte_len) for %d messages with the right header and tag, %s; the data is used", o.count, o.last)
}

// lost reports whether a message must count as lost although the queue pair has
// accepted it, because a queue pair without acknowledgements accepts messages to
// a dead rank.
func (d *driver) lost() bool {
	if !d.op.Kind.Message() {
		return false
	}
	d.mu.Lock()
	suspected := d.suspicion != nil && d.op.peer >= 0 && d.suspicion.Peer == d.op.peer
	to := d.op.To
	late := to >= 0 && !d.departed[to].IsZero() && d.departed[to].Before(d.op.Begun)
	d.mu.Unlock()
	if late && !suspected {
		d.suspect(to, fmt.Errorf("%w: %s", distributed.ErrPeerGone, closedText))
	}
	return suspected || late
}

// late suspects the first rank that has not delivered in time.
func (d *driver) late() {
	var who []int
	for _, p := range d.op.task.Silent() {
		if !slices.Contains(who, p) {
			who = append(who, p)
		}
	}
	slices.Sort(who)
	peer, text := -1, "no particular rank"
	for i, p := range who {
		if i == 0 {
			peer, text = p, ""
		} else {
			text += ", "
		}
		text += fmt.Sprintf("%s at %s", d.link.Name(p), d.link.Addrs[p])
	}
	d.suspect(peer, fmt.Errorf("%w: not delivered within %v: %s", distributed.ErrTimeout, d.link.OpTimeout, text))
}
