// Package lockstep runs one model on all ranks of a group, step for step.
//
// The leader's Leader is a model.Model to the engine. Each Forward is one piece
// of the cluster's work: the step goes to the followers as a payload, and every
// rank runs it on its own Rank, where the layers meet in the collectives of the
// group. Followers run what they are given; the leader alone needs logits.
//
// # Commit
//
// Whether a step was committed travels with the next one: its payload begins
// with the number of commits owed, 1 or 0. So a step costs one message, and at
// the end of an epoch, when all state is forgotten, nothing is left to be told.
//
// # Epochs
//
// Program (leader) and Worker (followers) are what the cluster calls to form
// and start an epoch. The model stays loaded from epoch to epoch unless the
// settings ask for another; Join gives it the new group and makes it forget all
// sequences. Each rank's model is used by one goroutine at a time.
package lockstep

import (
	"context"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
	"ringmaster/moe"
)

// Rank is the model of one rank.
type Rank interface {
	model.Model
	// Join makes g the group of the steps to come, in which rank r owns the
	// experts ranges[r] of every layer, and forgets all sequences.
	Join(g distributed.Group, ranges []moe.Range) error
	// Reserve checks a step and makes room for all that it needs, so that
	// its Forward does not fail for memory. Its error is ErrNoMemory of
	// package model or says what is wrong with the step. The room counts as
	// that of a Forward: it is held until the sequence is dropped.
	Reserve(step model.Step) error
	// Digest sums up the last Forward: for each layer the choice of
	// experts, then the final hidden state. Equal steps give equal digests
	// on all ranks.
	Digest() []uint32
	// LayerStats counts for each layer since the model was loaded.
	LayerStats() []moe.LayerStats
}

// Load makes the model of a rank. It reads all settings but Ranges, which Join
// gets.
type Load func(s Settings, rank int) (Rank, error)

// Cluster is what Leader needs of a *cluster.Leader.
type Cluster interface {
	// Epoch is the running epoch, else why none runs; the text names the rank.
	Epoch() (cluster.Epoch, error)
	// Begin numbers a piece of work and sends it to the followers.
	Begin(epoch uint32, payload []byte) (n uint64, err error)
	// End says that this rank has done work n and waits until every rank
	// agrees on the work before n. Its error is the verdict.
	End(ctx context.Context, n uint64, d cluster.Digest) error
	// Fail ends the epoch because of this rank and returns the verdict.
	Fail(epoch uint32, cause error) error
	// Reports asks the followers for their reports, [size]; that of rank 0
	// is nil.
	Reports(ctx context.Context) ([][]byte, error)
}
