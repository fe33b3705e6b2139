// Package cluster forms groups of ranks. It detects within seconds that a rank is lost,
// tells every rank which one it was, and forms the next group without it or when it is
// back. Each life of the group is an epoch.
//
// Rank 0, the leader, decides; the other ranks follow. Every decision is taken
// by a state machine without sockets and clocks (statemachine.go), which the
// transcripts in testdata drive event by event; the files leader*.go and
// follower*.go connect it to sockets, time and a data plane.
//
// # An epoch
//
// When all ranks have sent Hello, the leader plans and sends Form with the settings of
// the plan. Each rank runs Program.Form and answers Formed. When all have, the leader
// sends Connect; each rank joins the data plane and answers Connected. Then the leader
// sends Run, both sides call Program.Start, and the leader hands out numbered pieces of
// work. The first failure ends the epoch: the leader sends its verdict, and every rank
// fails its group with it. Config.OnLoss decides whether the next epoch forms at once
// with the remaining ranks or waits for the missing one.
//
// # Usage
//
// Rank 0 calls Lead with a Planner and waits for the first epoch with Leader.Wait. For
// each piece of work it calls Leader.Begin, does its own part over Epoch.Group, and
// calls Leader.End, which returns when all ranks have done the work with equal digests.
// Every other rank calls Follow with a Worker.
package cluster

import (
	"context"
	"errors"
	"math"

	"ringmaster/distributed"
)

// ErrStopAll, as the cause (context.Cause) of a follower's cancelled context,
// makes the follower ask the leader to stop the whole group: a user pressed
// Ctrl-C. With any other cause only that rank leaves.
var ErrStopAll = errors.New("interrupted by the user")

// Epoch is one life of the group, as one rank sees it.
type Epoch struct {
	Number uint32 // from 1; grows with every attempt to form a group
	Rank   int    // of this rank in the world
	// Members are the ranks of the world that form the epoch, ascending; rank i
	// of Group is Members[i].
	Members []int
	Group   *distributed.Group
	// Done ends when the epoch does, with the verdict as its cause
	// (context.Cause).
	Done context.Context
}

// run is the epoch that forms or runs on this rank. Group is nil until the data
// plane is connected.
type run struct {
	Epoch
	cancel context.CancelCauseFunc
}

// Digest summarises the result of a piece of work: hashes that are equal on all ranks
// that computed the same. Position i has the same meaning in every digest
// (Planner.Describe names it). A follower sends at most maxDigest values.
type Digest []uint32

// NotComputed stands in a Digest for what the rank has no part in. It is not compared.
const NotComputed = math.MaxUint32

// Program is what a rank does in a group.
type Program interface {
	// Form prepares for an epoch with the settings of the leader's plan,
	// before the group is connected: it loads the model, or keeps the one it
	// has. ctx ends when the epoch is abandoned, and another Form may begin before
	// this one has returned. An error ends the epoch.
	Form(ctx context.Context, settings []byte) error
	// Start begins the epoch: all state of the previous one is dropped. It
	// returns quickly. The cluster closes the epoch's group after the epoch,
	// when no Work is running.
	Start(e Epoch) error
}

// Worker is the Program of a follower.
type Worker interface {
	Program
	// Work does one piece of work and returns its digest. One goroutine calls
	// it, in the order of the leader's calls of Begin. It uses Epoch.Group and
	// returns soon after Epoch.Done has ended. An error ends the epoch.
	Work(payload []byte) (Digest, error)
	// Report answers Leader.Reports with bytes that the leader's program
	// understands. It may be called at any time after Form, by another
	// goroutine than Work.
	Report() []byte
}

// Joiner is a Worker that takes data from the leader's program while it waits to join an
// epoch: see Leader.Recruit.
type Joiner interface {
	// Ahead takes the payloads of Recruit.Send in order, on the goroutine of Work. After
	// an error it is not called again before the next Recruit.
	Ahead(payload []byte) error
}

// Planner is the Program of the leader.
type Planner interface {
	Program
	// Plan returns the settings of an epoch, given the hello of every rank
	// ([Size], in rank order). An error ends the whole group if no epoch has
	// run yet, otherwise this epoch only. Plan must not block.
	Plan(members []Hello) (settings []byte, err error)
	// Reads returns what the members have to read because of the last Plan.
	Reads() Reads
	// Fits returns why Plan would fail for these members, or nil, and has no
	// effect.
	Fits(members []Hello) error
	// Describe names position i of a digest for an error message, such as
	// "layer 3, choice of experts".
	Describe(i int) string
}
