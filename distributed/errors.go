package distributed

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinel errors. Test for them with errors.Is.
var (
	ErrConfig      = errors.New("wrong configuration")
	ErrUnavailable = errors.New("not available here")
	ErrBootstrap   = errors.New("the group could not be formed")
	ErrTimeout     = errors.New("deadline passed")
	ErrPeerGone    = errors.New("peer is gone")
	ErrDesync      = errors.New("ranks run different operations")
	ErrBusy        = errors.New("another operation is in progress")
	ErrClosed      = errors.New("the group is closed")
	ErrArgument    = errors.New("wrong argument")
)

// OpError says which operation of a group failed, where and why. Unknown fields
// are -1, 0 or "".
type OpError struct {
	Op      string   // "all_sum", "recv", "connect"…
	Seq     uint64   // number of the operation in its group
	Rank    int      // the rank that reports
	Peer    int      // the rank at fault or waited for, -1 if unknown
	Addr    string   // address of the peer
	World   []int    // world rank of each rank of the group; nil if the ranks are those of the world
	Hosts   []string // name of each rank's host; nil if unknown
	Elapsed time.Duration
	Err     error // wraps one of the sentinel errors above
}

// Error returns one line: what failed, where, after how long, and why.
func (e *OpError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s #%d on %s%s", e.Op, e.Seq, RankName(e.Rank, hostOf(e.Hosts, e.Rank)), e.outside(e.Rank))
	if e.Peer >= 0 {
		fmt.Fprintf(&b, ": %s%s", RankName(e.Peer, hostOf(e.Hosts, e.Peer)), e.outside(e.Peer))
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

// outside returns the world rank of a rank of a child, for the error text.
func (e *OpError) outside(rank int) string {
	if rank < 0 || rank >= len(e.World) {
		return ""
	}
	return fmt.Sprintf(" (world rank %d)", e.World[rank])
}

// WorldPeer returns the world rank of Peer.
func (e *OpError) WorldPeer() int {
	if e.Peer >= 0 && e.Peer < len(e.World) {
		return e.World[e.Peer]
	}
	return e.Peer
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Unconnected describes a rank to which this rank has no connection when Transport.Connect
// gives up.
type Unconnected struct {
	Rank    int    `json:"rank"`    // the other, in the world
	Addr    string `json:"addr"`    // the address that was dialled: the other's or this rank's
	Dialled bool   `json:"dialled"` // this rank dials the other
	// Unreachable: the network prevented a connection or dropped what was sent on it. It is
	// false for a rank that was reached, because its answer may still arrive.
	Unreachable bool   `json:"unreachable"`
	Cause       string `json:"cause"` // the error with its cure
}

// UnconnectedError lists the ranks that a rank is not connected to.
type UnconnectedError struct{ Missing []Unconnected }

// Error returns a text with a clause for each rank.
func (e *UnconnectedError) Error() string {
	all := make([]string, len(e.Missing))
	for i, m := range e.Missing {
		all[i] = m.Cause
	}
	return strings.Join(all, "; ")
}

// PeerError is the verdict on the rank that ended an epoch; every rank gets the
// same verdict.
type PeerError struct {
	Rank  int    // the rank at fault, -1 if no rank is at fault
	Host  string // name of its host, "" if unknown
	Addr  string // its address, "" if unknown
	Cause string // "connection closed", "no heartbeat for 4 s", …
}

// Error puts the rank first, because the reader has to examine that rank.
func (e *PeerError) Error() string {
	switch {
	case e.Rank < 0:
		return e.Cause
	case e.Addr == "":
		return fmt.Sprintf("%s: %s", RankName(e.Rank, e.Host), e.Cause)
	}
	return fmt.Sprintf("%s at %s: %s", RankName(e.Rank, e.Host), e.Addr, e.Cause)
}

// culprit returns the world rank that an error blames, -1 if it names none.
func culprit(err error) int {
	if p, ok := errors.AsType[*PeerError](err); ok {
		return p.Rank
	}
	if op, ok := errors.AsType[*OpError](err); ok {
		return op.WorldPeer()
	}
	return -1
}

// Unwrap makes errors.Is(err, ErrPeerGone) hold.
func (e *PeerError) Unwrap() error { return ErrPeerGone }
