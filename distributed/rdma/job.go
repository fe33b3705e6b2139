package rdma

import (
	"time"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/distributed/reduce"
)

// The terms of engine.h that Go uses too.
const (
	maxSlots  = 8
	headSize  = 64 // struct rm_head
	sendHeads = 2

	runDone    = 0
	runAgain   = 1
	runReduce  = 2
	runStopped = 3
	runBroken  = 4

	failCompletion = 1
	failPoll       = 2
	failPostSend   = 3
	failPostRecv   = 4
	failHead       = 5
	failStale      = 6
	failLength     = 7
	failLost       = 8
)

// opCode says what an operation is, on the wire.
type opCode uint8

const (
	opAllSum opCode = iota + 1
	opAllMax
	opAllMin
	opAllGather
	opAllGatherV
	opSumScatter
	opBroadcast
	opBarrier
	opMessage // send, recv, send_recv
	opSplit   // a barrier on the rails while a split is talked over on the side channel
)

var opNames = [...]string{opAllSum: "all_sum", opAllMax: "all_max", opAllMin: "all_min", opAllGather: "all_gather",
	opAllGatherV: "all_gather_v", opSumScatter: "sum_scatter", opBroadcast: "broadcast", opBarrier: "barrier", opMessage: "send or recv", opSplit: "split"}

// noDType is that of operations without elements.
const noDType distributed.DType = 255

// head is struct rm_head in words.
type head struct {
	op       opCode
	dtype    distributed.DType
	rail     int
	from, to int
	epoch    uint32
	group    uint64
	seq      uint64
	bytes    uint64
	extra    uint64
}

// fault is struct rm_fail in words: what stopped a job.
type fault struct {
	kind     int
	end      *end // the connection
	errno    int
	got      int // result of a poll
	want     uint32
	wc       verbs.WC
	head     head // of the peer
	expected head
}

// shape is what a job is made of.
type shape struct {
	locals []*plan.Local
	ends   func(peer, rail int) *end
	out    head // of what this rank sends; from, to and rail are filled in
	in     head // of what it receives
	whole  bool
	tag    int // bytes at the end of messages
	op     reduce.Op
	reduce bool
	spin   time.Duration
}

// end is this rank's side of a queue pair: a rail to a peer.
type end struct {
	conn // what C has of it
	rail
	qp  *verbs.QP
	cq  *verbs.CQ
	mr  *verbs.MR
	mem []byte // of the slab: see struct rm_conn
	dev *device
	psn uint32
	bad error // why it cannot be used, nil
}
