// Package distributed is how ranks add up what each has computed: the Group and
// its contract. Transports stand in the packages below it (tcp); a group of one
// rank is Local. How ranks find each other, notice that one is gone and begin
// anew is package cluster.
//
// # Contract
//
// A Group has Size ranks, numbered from 0. Every operation but Send, Recv and
// SendRecv is collective: all ranks call the same operations in the same order
// with the same arguments but for the data. A group is used by one goroutine;
// a second operation that begins before the first has ended fails with ErrBusy
// and disturbs nothing.
//
// # Arithmetic
//
// Reductions have one result, the same bits on every rank and in every run,
// whatever the algorithm: elements are added in the order of the ranks, 0
// first. Float16 and BFloat16 are added in float32 and rounded once, at the
// end, to nearest even. Integers wrap. NaN propagates through AllMax and AllMin.
//
// # Splitting
//
// Split makes groups of some of the ranks of another, which do all that a group
// does. A rank uses a group and those that were split off it one after the
// other, not two at once. A child fails and is closed with its parent; the
// parent outlives its children. Errors of a child name ranks by their number in
// it and by that in the outermost group, the world rank; verdicts and
// suspicions have the latter. A child may be of another kind than its parent,
// where the members' hardware has no room for more.
//
// # Failure
//
// Every wait ends by progress, by the failure of the group, by its context or
// by the deadline of the group. The first failure is final: the operation under
// way and every later one return the same cause. What an operation that failed
// has written is undefined. Recovery is another group, made by the epoch after.
package distributed

import (
	"context"
	"time"
)

// Group is a set of ranks that compute together. See the package comment.
type Group interface {
	Rank() int
	Size() int
	// Kind names the transport: "local", "tcp".
	Kind() string

	// AllSum leaves in dst, on every rank, the sum of src over all ranks.
	// Both have the same length, a multiple of dt.Size(); dst may be src,
	// other overlap is an error. Likewise AllMax and AllMin.
	AllSum(ctx context.Context, dst, src []byte, dt DType) error
	AllMax(ctx context.Context, dst, src []byte, dt DType) error
	AllMin(ctx context.Context, dst, src []byte, dt DType) error
	// AllGather leaves src of rank r in dst[r*len(src):]; dst has
	// Size*len(src) bytes. src may be its own place in dst.
	AllGather(ctx context.Context, dst, src []byte) error
	// SumScatter sums src, Size chunks of len(dst) bytes, and leaves chunk r
	// of the sum on rank r. dst must not overlap src.
	SumScatter(ctx context.Context, dst, src []byte, dt DType) error
	// Send and Recv move bytes between two ranks; both sides give the same
	// length. Two ranks that send to each other use SendRecv, which cannot
	// block both.
	Send(ctx context.Context, src []byte, to int) error
	Recv(ctx context.Context, dst []byte, from int) error
	SendRecv(ctx context.Context, dst []byte, from int, src []byte, to int) error
	// Broadcast copies buf of the root to all.
	Broadcast(ctx context.Context, buf []byte, root int) error
	// Barrier returns when every rank has called it.
	Barrier(ctx context.Context) error

	// StartAllSum begins an AllSum and returns without waiting for others.
	// Until Wait has returned, src and dst belong to the group and no other
	// operation may begin. Errors, also those of the arguments, come from Wait.
	StartAllSum(ctx context.Context, dst, src []byte, dt DType) Pending
	// StartAllGatherV begins a gathering of parts of unlike length: dst is
	// the parts of all ranks one after the other, sizes[r] bytes of rank r.
	// The part of this rank is already in its place. sizes are the same on
	// every rank, and may be 0.
	StartAllGatherV(ctx context.Context, dst []byte, sizes []int) Pending

	// Split makes groups of the ranks that give the same color, 0 to
	// 2^31-1: ordered by key, ties by rank; a key below 0 stands for the
	// rank (see Members). A rank that gives Undefined gets nil. It is
	// collective over all ranks of this group, and an error on one is an
	// error on all: ErrArgument for a color, ErrBootstrap for a child that
	// could not be formed; after these the group is as good as before. A
	// child of one rank is a Local group.
	Split(ctx context.Context, color, key int) (Group, error)

	// Fail ends the group with a cause, from any goroutine. Only the first
	// cause counts.
	Fail(cause error)
	// Stats counts since the group was made. It may be called by any
	// goroutine.
	Stats() Stats
	// Close frees the group, in bounded time. Operations under way and later
	// ones return ErrClosed unless the group has failed before. It may be
	// called again.
	Close() error
}

// Pending is an operation under way.
type Pending interface {
	// Wait returns when the operation has ended. It is called once.
	Wait() error
}

// Stats are counts of a group since it was made.
type Stats struct {
	Ops      uint64 // operations that ended well
	Sent     uint64 // bytes given to the transport, headers included
	Received uint64 // bytes taken from it
	// Waiting is the time in which an operation was waited for and nothing
	// of the slowest rank's data had come; Wire the time in which it was
	// waited for while data moved.
	Waiting time.Duration
	Wire    time.Duration
}

// Sub gives what was counted between the earlier stats and s.
func (s Stats) Sub(earlier Stats) Stats {
	return Stats{
		Ops: s.Ops - earlier.Ops, Sent: s.Sent - earlier.Sent, Received: s.Received - earlier.Received,
		Waiting: s.Waiting - earlier.Waiting, Wire: s.Wire - earlier.Wire,
	}
}
