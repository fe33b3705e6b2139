package distributed

import (
	"context"
	"fmt"
	"time"
)

// Driver moves the bytes of one group: a transport's bring-up returns one, and
// everything that is the same for all transports is Group's. A driver is used as
// follows.
//
//   - Start and Wait are called by one goroutine at a time, and for one operation
//     at a time: Start, then Wait of the same Op.
//   - Abort and the Suspect function of the link may be used at any time, by any
//     goroutine.
//   - Child is called between operations, Close once and last.
//
// A driver checks no arguments, keeps no order and no deadline but those in the
// Op: Group has done that. What it must do is name the peer that an operation
// cannot go on without, and let go of the caller's memory when it is told to.
type Driver interface {
	// Start begins an operation: it posts what can be posted and never waits
	// for another rank. The driver may use op, Dst and Src until Wait has
	// returned without an error. An error of Start ends the group, as one of
	// Wait does.
	Start(op *Op) error
	// Wait returns when the operation has ended, at the latest at its
	// deadline. An error ends the group; a *Suspicion says whose fault it
	// is. After an error the group calls Abort, and then Wait once more,
	// which returns when the driver no longer touches the memory of the
	// operation.
	Wait(op *Op) (Timing, error)
	// Abort stops whatever is under way, here and as far as possible on the
	// other ranks, which are told the cause. It is called at most once and
	// does not wait for others.
	Abort(cause error)
	// Child forms the group of some of the ranks, by Form. All members call
	// it at about the same time.
	Child(ctx context.Context, c ChildSpec) (*Group, error)
	// Describe says what the driver is.
	Describe() Description
	// Close frees everything, in bounded time. Nobody is in Start or Wait.
	// Without an Abort before it the group ends in good order: what was
	// sent reaches the others.
	Close() error
}

// Calibrator is a Driver that measures or agrees on something by operations of
// its own group before the group is used.
type Calibrator interface {
	// Calibrate is called by Form on all ranks. Statistics and the numbers
	// of operations start at zero after it.
	Calibrate(ctx context.Context, g *Group) error
}

// Offerer is a Driver that tells the other members of a child something before
// the child is formed.
type Offerer interface {
	// Offer is what this rank tells, of at most 1 MiB.
	Offer() []byte
}

// Description says what carries a group.
type Description struct {
	Kind     string   // "tcp", "rdma", "mpi", "local"
	Topology string   // one line for people: how the ranks are joined, what was measured
	Notes    []string // what was put right or left out when the group was formed
}

// Timing is what a driver has seen of an operation.
type Timing struct {
	// Heard is when the first bytes of the last rank had come: the time
	// before it was spent waiting, the time after it moving data. Zero, or a
	// time before Wait was called: nothing was waited for.
	Heard time.Time
}

// Suspicion is the error of a driver that blames a peer.
type Suspicion struct {
	Peer int   // rank of the group, -1 for nobody in particular
	Err  error // wraps one of this package's kinds of errors
}

func (s *Suspicion) Error() string { return fmt.Sprintf("rank %d: %v", s.Peer, s.Err) }

// Unwrap gives the cause.
func (s *Suspicion) Unwrap() error { return s.Err }

// ChildSpec says which group a driver is to form in a split.
type ChildSpec struct {
	Link    Link     // of this rank in the child
	Members []int    // [Link.Size] ranks of the parent
	Offers  [][]byte // [Link.Size] what the members have offered
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

// String is the name in errors: "all_sum".
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("operation %d", uint8(k))
}

// Known tells whether k is one of the kinds.
func (k Kind) Known() bool { return k > 0 && k < kinds }

// Message tells whether the operation is between two ranks.
func (k Kind) Message() bool { return k == Send || k == Recv || k == SendRecv }

// Reduces tells whether the operation computes.
func (k Kind) Reduces() bool {
	return k == AllSum || k == AllMax || k == AllMin || k == ReduceScatter
}

// NoDType is the type of operations that only move bytes.
const NoDType = DType(255)

// Op is an operation as a driver gets it: checked, numbered, with a deadline.
//
//	kind              Src                   Dst                         Sizes
//	AllSum, Max, Min  own block             the result, may be Src
//	AllGather, Agree  own part              all parts; Src may be its own place
//	AllGatherV                              all parts, the own in place [Size]
//	ReduceScatter     all parts             the own part of the sum     [Size], nil: equal parts
//	Gather            own part              at Root all parts, else nil [Size]
//	Broadcast                               the buffer
//	Send, SendRecv    what goes to rank To
//	Recv, SendRecv                          what comes from rank From
//
// The parts of all ranks lie one after the other in the order of the ranks; see
// Part.
type Op struct {
	Kind     Kind
	DType    DType // NoDType unless Kind.Reduces
	Dst, Src []byte
	Sizes    []int // bytes of each part
	Root     int   // of Broadcast and Gather
	To, From int   // of messages, -1 for none

	Seq    uint64 // of the collective operations from 1, the same on all ranks; 0 for messages
	Number uint64 // of all operations of this rank's group, from 1
	// Begun is when the caller began the operation, Deadline when Wait must
	// have returned.
	Begun, Deadline time.Time
	// Async: the caller computes between Start and Wait.
	Async bool

	traffic *traffic
}

// Part is the place of a rank's part among all parts: [from, to) in bytes.
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

// Sent counts bytes given to the network, headers included. Any goroutine may
// call it.
func (o *Op) Sent(n int64) { o.traffic.sent.Add(n) }

// Received counts bytes taken from the network.
func (o *Op) Received(n int64) { o.traffic.received.Add(n) }
