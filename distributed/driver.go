package distributed

import (
	"context"
	"fmt"
	"time"
)

// Driver moves the bytes of one group. A transport's bring-up returns a Driver; Group does
// everything that is the same for all transports. The rules of use:
//
//   - Start and Wait are called by one goroutine at a time, and for one operation
//     at a time: Start, then Wait of the same Op.
//   - Abort and the Suspect function of the link may be called at any time, by any
//     goroutine.
//   - Child is called between operations, Close once and last.
//
// A driver does not check arguments or the order of operations, and has no deadline but the one
// in the Op, because Group takes care of these. A driver must name the peer that keeps an
// operation from completing, and release the caller's memory after Abort.
type Driver interface {
	// Start begins an operation: it posts what can be posted and never
	// waits for another rank. The driver may use op, Dst and Src until Wait
	// has returned without an error. An error from Start ends the group,
	// like one from Wait.
	Start(op *Op) error
	// Wait returns when the operation has ended, at the latest at its
	// deadline. An error ends the group; a *Suspicion says which peer is to
	// blame. After an error the group calls Abort and then Wait once more;
	// that second Wait returns when the driver no longer touches the memory
	// of the operation.
	Wait(op *Op) (Timing, error)
	// Abort stops the current operation on this rank and, as far as possible, on the other
	// ranks, which receive the cause. It is called at most once and does not wait for other
	// ranks.
	Abort(cause error)
	// Child forms a group of some of the ranks by calling Form. All members call it at about
	// the same time.
	Child(ctx context.Context, c ChildSpec) (*Group, error)
	// Describe returns a description of the driver.
	Describe() Description
	// Close frees everything, in bounded time. No goroutine is in Start or Wait when it is
	// called. Unless Abort was called, data already sent still reaches the other ranks.
	Close() error
}

// Calibrator is a Driver that uses operations of its own group to measure it, or to agree with
// the other ranks, before the group is used.
type Calibrator interface {
	// Calibrate is called by Form on all ranks. Statistics and operation
	// numbers are reset to zero after it.
	Calibrate(ctx context.Context, g *Group) error
}

// Retransmitter is a Driver that knows how often data was retransmitted.
type Retransmitter interface {
	// Retransmits returns the number of segments retransmitted to a rank, -1 if it is unknown.
	Retransmits(rank int) int64
}

// Offerer is a Driver that sends the other members of a child some data before
// the child is formed.
type Offerer interface {
	// Offer returns this rank's data, at most 1 MiB.
	Offer() []byte
}

// Description says what carries a group.
type Description struct {
	Kind     string   // "tcp", "rdma", "mpi", "local"
	Topology string   // one human-readable line: how the ranks are connected, what was measured
	Notes    []string // what was corrected or left out when the group was formed
}

// Timing is what a driver measured of an operation.
type Timing struct {
	// Heard is when the first bytes of the last rank were received. The time in Wait before it
	// counts as waiting, the time after it as moving data. If it is zero, or before the call of
	// Wait, no time counts as waiting.
	Heard time.Time
}

// Suspicion is the error of a driver that blames a peer.
type Suspicion struct {
	Peer int   // rank of the group, -1 for no particular peer
	Err  error // wraps one of this package's sentinel errors
}

func (s *Suspicion) Error() string { return fmt.Sprintf("rank %d: %v", s.Peer, s.Err) }

// Unwrap returns the cause.
func (s *Suspicion) Unwrap() error { return s.Err }

// ChildSpec describes the group that a driver is to form in a split.
type ChildSpec struct {
	Link    Link     // of this rank in the child
	Members []int    // [Link.Size] ranks of the parent
	Offers  [][]byte // [Link.Size] what each member offered
}

// Kind is what an operation does.
type Kind uint8

// The kinds of operations. All but Send, Recv and SendRecv are collective.
const (
	AllSum Kind = iota + 1
	AllMax
	AllMin
	AllGather
	AllGatherV
	ReduceScatter
	Gather
	Broadcast
	Barrier
	Agree // the all-gather of a split; ranks in another operation are out of step
	Send
	Recv
	SendRecv
	kinds
)

var kindNames = [kinds]string{"", "all_sum", "all_max", "all_min", "all_gather", "all_gather_v", "reduce_scatter",
	"gather", "broadcast", "barrier", "split", "send", "recv", "send_recv"}

// String returns the name used in errors, such as "all_sum".
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("operation %d", uint8(k))
}

// Known reports whether k is one of the kinds.
func (k Kind) Known() bool { return k > 0 && k < kinds }

// Message reports whether the operation is between two ranks.
func (k Kind) Message() bool { return k == Send || k == Recv || k == SendRecv }

// OnWire returns the kind that the headers of drivers carry. All messages share one, because
// a Send on one side is a Recv on the other.
func (k Kind) OnWire() Kind {
	if k.Message() {
		return Send
	}
	return k
}

// Reduces reports whether the operation combines elements arithmetically.
func (k Kind) Reduces() bool {
	return k == AllSum || k == AllMax || k == AllMin || k == ReduceScatter
}

// NoDType is the type of operations that only move bytes.
const NoDType = DType(255)

// Op is an operation as a driver gets it: checked, numbered, with a deadline.
//
//	kind              Src                   Dst                         Sizes
//	AllSum, Max, Min  this rank's block     the result, may be Src
//	AllGather, Agree  this rank's part      all parts; Src may lie in place in Dst
//	AllGatherV                              all parts, this rank's in   [Size]
//	                                        place already
//	ReduceScatter     all parts             this rank's part of the sum [Size], nil: equal parts
//	Gather            this rank's part      at Root all parts, else nil [Size]
//	Broadcast                               the buffer
//	Send, SendRecv    data for rank To
//	Recv, SendRecv                          data from rank From
//
// The parts of all ranks are stored one after the other in rank order; see Part.
type Op struct {
	Kind     Kind
	DType    DType // NoDType unless Kind.Reduces
	Dst, Src []byte
	Sizes    []int // bytes of each part
	Root     int   // of Broadcast and Gather
	To, From int   // of messages, -1 for none

	Seq    uint64 // counts collective operations from 1, the same on all ranks; 0 for messages
	Number uint64 // counts all operations of the group on this rank, from 1
	// Begun is when the caller began the operation, Deadline when Wait must
	// have returned.
	Begun, Deadline time.Time
	// Async: the caller computes between Start and Wait.
	Async bool

	traffic *traffic
}

// Part returns the byte range [from, to) of a rank's part among all parts.
func (o *Op) Part(rank int) (from, to int) {
	if o.Sizes == nil {
		n := len(o.Dst) // ReduceScatter
		if o.Kind != ReduceScatter {
			n = len(o.Src)
		}
		return rank * n, (rank + 1) * n
	}
	for _, n := range o.Sizes[:rank] {
		from += n
	}
	return from, from + o.Sizes[rank]
}

// Sent counts bytes handed to the network, headers included. Any goroutine may
// call it.
func (o *Op) Sent(n int64) { o.traffic.sent.Add(n) }

// Received counts bytes received from the network. Any goroutine may call it.
func (o *Op) Received(n int64) { o.traffic.received.Add(n) }
