package engine

import (
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/distributed/reduce"
)

// Result is the outcome of running a task: the results of rme_run.
type Result int

// The results. A Broken task has a Fault.
const (
	Done        Result = 0
	Again       Result = 1 // the time slice is over
	needsReduce Result = 2
	Stopped     Result = 3
	Broken      Result = 4
)

// header is struct rme_header.
type header struct {
	kind     distributed.Kind
	dtype    distributed.DType
	rail     int
	from, to int
	epoch    uint32
	group    uint64
	seq      uint64
	bytes    uint64
	extra    uint64
}

// shape is the input of the compilation of a task.
type shape struct {
	locals []*plan.Local
	conn   func(peer, rail int) *Conn
	out    header // of what this rank sends; from, to and rail are filled in
	in     header // of what it receives
	tag    int    // bytes at the end of messages
	op     reduce.Op
	reduce bool
	spin   time.Duration
}

// Layout divides the registered memory of a connection: slots to send, equally
// many to receive, headers to send and one to receive, and with Credits a frame
// with the credit words, at the very end.
type Layout struct {
	Slots       int
	SlotBytes   int
	HeaderBytes int
	Credits     bool // receives are announced to the peer
}

const (
	// MaxSlots is the maximum number of slots of a connection in each direction.
	MaxSlots = plan.MaxSlots
	// SendHeaders is how many headers may be in flight.
	SendHeaders = 2
	// CreditWrites is how many writes of credits may be in flight.
	CreditWrites = 4
)

// Bytes returns the size of the memory.
func (l Layout) Bytes() int {
	n := 2*l.Slots*l.SlotBytes + (SendHeaders+1)*l.HeaderBytes
	if l.Credits {
		n += plan.Frame
	}
	return n
}

// RecvOffset returns where the first receive slot begins.
func (l Layout) RecvOffset() int { return l.Slots * l.SlotBytes }

// Conn is this rank's side of a queue pair: one rail to one peer. Its queue pair
// must be ready to send (RTS) before anything is posted.
type Conn struct {
	Peer   int
	Rail   int
	Device string // for errors
	QP     *verbs.QP
	CQ     *verbs.CQ
	MR     *verbs.MR
	Mem    []byte // part of the region, at least Layout.Bytes
	handle        // the C side, after Open
}

// creditWords returns where the credit words begin. They are at the end of the
// memory, so that they do not move when the slots are made smaller.
func (c *Conn) creditWords() int { return len(c.Mem) - plan.Frame }
