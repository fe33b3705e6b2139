package distributed

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of errors. Test for them with errors.Is.
var (
	ErrConfig      = errors.New("wrong configuration")
	ErrUnavailable = errors.New("not available here")
	ErrBootstrap   = errors.New("the group could not be formed")
	ErrTimeout     = errors.New("deadline passed")
	ErrPeerGone    = errors.New("peer is gone")
	ErrDesync      = errors.New("ranks do different things")
	ErrBusy        = errors.New("another operation is under way")
	ErrClosed      = errors.New("the group is closed")
	ErrArgument    = errors.New("wrong argument")
)

// OpError says which operation of a group failed, where and why. Fields that
// are not known are -1, 0 or "".
type OpError struct {
	Op      string // "all_sum", "recv", "connect"…
	Seq     uint64 // number of the operation in its group
	Rank    int    // the rank that reports
	Peer    int    // the rank at fault or waited for, -1 if none is known
	Addr    string // address of the peer
	World   []int  // of a group that was split off: each rank's number in the outermost group
	Elapsed time.Duration
	Err     error // wraps one of the kinds above
}

// Error is one line: what, where, how long, why.
func (e *OpError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s #%d on rank %d%s", e.Op, e.Seq, e.Rank, e.outside(e.Rank))
	if e.Peer >= 0 {
		fmt.Fprintf(&b, ": rank %d%s", e.Peer, e.outside(e.Peer))
		if e.Addr != "" {
			fmt.Fprintf(&b, " at %s", e.Addr)
		}
	}
	if e.Elapsed > 0 {
		fmt.Fprintf(&b, " after %v", e.Elapsed.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// outside names a rank of a group that was split off by its number in the
// outermost group.
func (e *OpError) outside(rank int) string {
	if rank < 0 || rank >= len(e.World) {
		return ""
	}
	return fmt.Sprintf(" (world rank %d)", e.World[rank])
}

// WorldPeer is Peer as the outermost group numbers it.
func (e *OpError) WorldPeer() int {
	if e.Peer >= 0 && e.Peer < len(e.World) {
		return e.World[e.Peer]
	}
	return e.Peer
}

// Unwrap gives the cause.
func (e *OpError) Unwrap() error { return e.Err }

// PeerError is the verdict on a rank that ended an epoch: every rank gets the
// same one.
type PeerError struct {
	Rank  int    // the rank at fault, -1 if the fault is nobody's
	Addr  string // where it was, "" if not known
	Cause string // "connection closed", "no heartbeat for 4 s", …
}

// Error begins with the rank, for it is what a person has to look at.
func (e *PeerError) Error() string {
	switch {
	case e.Rank < 0:
		return e.Cause
	case e.Addr == "":
		return fmt.Sprintf("rank %d: %s", e.Rank, e.Cause)
	}
	return fmt.Sprintf("rank %d at %s: %s", e.Rank, e.Addr, e.Cause)
}

// culprit is the rank of the outermost group that an error is about, -1 if it
// names none.
func culprit(err error) int {
	var p *PeerError
	if errors.As(err, &p) {
		return p.Rank
	}
	var op *OpError
	if errors.As(err, &op) {
		return op.WorldPeer()
	}
	return -1
}

// Unwrap makes errors.Is(err, ErrPeerGone) hold.
func (e *PeerError) Unwrap() error { return ErrPeerGone }
