// Package replica runs one model on all ranks of a group, step for step.
//
// To the engine, the Leader on rank 0 is a model.Model. Each Forward is one piece of
// the cluster's work: the step is sent to the followers as a payload, and every
// rank runs it on its own Rank, whose layers combine their outputs in collectives
// of the group. Followers decide nothing; only the leader needs logits.
//
// # Commit
//
// Whether a step was committed is sent with the next one: its payload says whether
// the previous step is committed or abandoned. So a step costs one message. The
// leader returns a step's logits when all ranks have run it and agree.
//
// # Epochs
//
// Program (leader) and Worker (followers) are what the cluster calls to form
// and start an epoch. The model stays loaded from epoch to epoch unless the
// settings need another, and Join gives it the new group. Sequences outlive the
// epoch: the first work of the next one (sync.go) tells every rank what became of the
// last step that all had run, and a rank that does not have the leader's
// sequences, because it is new, receives them as snapshots. Then the leader runs the
// step again that was interrupted. Sequences are lost when the leader cannot
// tell that a next epoch is coming, or when its own model was replaced. Each rank's
// model is used by one goroutine at a time.
package replica

import (
	"context"
	"io"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model"
	"ringmaster/parallel"
)

// Rank is the model of one rank.
type Rank interface {
	model.Model
	model.Sized
	// SetSequenceBudget sets the budget of model.Sized to that of the settings.
	SetSequenceBudget(bytes int64)
	// Join makes g the group of the following steps, in which each rank
	// computes its part of the placement. Sequences stay. A placement that is
	// not one of this model and group is an error.
	Join(g *distributed.Group, p parallel.Placement) error
	// Forget drops all sequences, and Drop one. Neither runs during a step.
	Forget()
	Drop(id model.SeqID)
	// Snapshot writes the state of a sequence, given its committed tokens
	// [Len(id)]; Restore makes a new sequence of it and returns the tokens.
	// Neither runs during a step.
	Snapshot(w io.Writer, id model.SeqID, tokens []int32) error
	Restore(r io.Reader, id model.SeqID) ([]int32, error)
	// SnapshotFrom and RestoreFrom are the same a range of positions at a time: what a
	// rank that has the state of the first from tokens lacks of the others, of which
	// there are StateBytes about. A sequence that is taken so runs once all its tokens
	// have been taken, and after an error does not exist.
	SnapshotFrom(w io.Writer, id model.SeqID, tokens []int32, from int) error
	RestoreFrom(r io.Reader, id model.SeqID, before []int32) ([]int32, error)
	StateBytes(id model.SeqID, from, length int) int64
	// Prepare checks a step and allocates what it needs, so that its Run does
	// not fail for lack of memory. Its error is model.ErrNoMemory or says
	// what is wrong with the step. The memory is that of the sequences and is
	// held until they are dropped.
	Prepare(step model.Step) error
	// Run runs the step that was prepared last, which is Forward without its
	// checks.
	Run(ctx context.Context) ([][]float32, error)
	// Digest is the checksums of the last Run [layers+1]: the choice of
	// experts of each layer, then the final hidden state. Equal steps give
	// equal digests on all ranks.
	Digest() []uint32
	// Extent and Examine are those of decoder.Model: the sums of a part of the model,
	// whatever the placement. Examine does not run during a step.
	Extent() model.Extent
	Examine(p model.Piece) ([]model.Sum, error)
	// LayerStats are the counts of each layer [layers] since Load.
	LayerStats() []parallel.LayerStats
	// Exchanges are the counts of the exchanges of each layer [layers+1] since Load, those
	// of the output head last. It may be called at any time.
	Exchanges() [][]parallel.Exchange
}

// Cluster is what Leader needs of a *cluster.Leader.
type Cluster interface {
	// Epoch is the running epoch, or the error that ended it, which names the
	// rank.
	Epoch() (cluster.Epoch, error)
	// State is Epoch, and whether the next one is forming by itself after a loss, of
	// the same moment.
	State() (e cluster.Epoch, recovering bool, err error)
	// Await is Epoch, but waits for the next epoch while State is recovering.
	Await(ctx context.Context) (cluster.Epoch, error)
	// Reads is what the ranks of the epoch that forms or runs have to read.
	Reads() cluster.Reads
	// Recruit waits until a rank has prepared to join the epoch and waits for what it
	// lacks, until ctx or the cluster ends.
	Recruit(ctx context.Context) (*cluster.Recruit, error)
	// Begin numbers a piece of work and sends it to the followers.
	Begin(epoch uint32, payload []byte) (n uint64, err error)
	// End reports that this rank has done work n, and waits until all ranks
	// have done it and agree on its digest. Its error is the verdict.
	End(ctx context.Context, n uint64, d cluster.Digest) error
	// Fail ends the epoch because of this rank and returns the verdict.
	Fail(epoch uint32, cause error) error
	// Reports asks the followers for their reports, [size] by rank; those of
	// rank 0 and of ranks that are no members of the epoch are nil.
	Reports(ctx context.Context) ([][]byte, error)
}
