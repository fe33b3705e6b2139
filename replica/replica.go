// Package replica runs one model on all ranks of a group, step by step.
//
// To the engine, the Leader on rank 0 is a model.Model. Each Forward is one piece of
// the cluster's work: the step is sent to the followers as a payload, and every
// rank runs it on its own Rank, whose layers combine their outputs in collectives
// of the group. Followers decide nothing; only the leader needs logits.
//
// # Commit
//
// The payload of a step says whether the previous step is committed or abandoned, so
// that a step needs only one message. The leader returns a step's logits when all ranks
// have run it and agree.
//
// # Epochs
//
// The cluster calls a Program (leader) and Workers (followers) to form and start an epoch.
// The model stays loaded from epoch to epoch unless the settings need another, and Join
// gives it the new group. Sequences outlive the epoch: the first work of the next one
// (sync.go) tells every rank whether the last common step was committed. A new rank, which
// does not have the leader's sequences, receives them as snapshots. Then the leader
// repeats the interrupted step. Sequences are lost when the leader cannot know that
// another epoch will follow, or when its own model was replaced. Each rank's model is used
// by one goroutine at a time.
//
// # Usage
//
// Rank 0 makes NewProgram from its Host and Planner, gives it to cluster.Lead, and makes
// NewLeader from both. Every other rank gives NewWorker to cluster.Follow. Both wrap their
// distributed.Transport by Transport first.
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
	// Join makes g the group of the following steps, in which each rank computes its part
	// of the placement. Sequences stay. A placement that does not fit this model and group
	// is an error.
	Join(g *distributed.Group, p parallel.Placement) error
	// JoinStage is Join of a placement with stages; inside is the group of the ranks of the
	// stage.
	JoinStage(g, inside *distributed.Group, p parallel.Placement) error
	// HoldWeights lets the backend hold the weights of this rank's part. It is called after
	// each Join of an epoch, which begins when it returns.
	HoldWeights() error
	// Help returns model.Step.Help for a step that is to go through the helper of rank 0, nil
	// for one that rank 0 runs alone.
	Help(step model.Step) []int
	// Settle waits for what the helper still sends of the last step, or computes it if the helper
	// is lost; before it the group is in use. It does not run during a step.
	Settle() error
	// Forget drops all sequences, and Drop one. Neither runs during a step.
	Forget()
	Drop(id model.SeqID)
	// Checkpoints returns the lengths of the committed checkpoints of a sequence,
	// ascending.
	Checkpoints(id model.SeqID) []int
	// KeepCheckpoints frees the checkpoints of a sequence that are not at these lengths. It
	// does not run during a step.
	KeepCheckpoints(id model.SeqID, at []int)
	// Snapshot writes the state of a sequence, given its committed tokens
	// [Len(id)]; Restore makes a new sequence of it and returns the tokens.
	// Neither runs during a step.
	Snapshot(w io.Writer, id model.SeqID, tokens []int32) error
	Restore(r io.Reader, id model.SeqID) ([]int32, error)
	// SnapshotFrom and RestoreFrom do the same for a range of positions: what a rank that
	// has the state of the first from tokens still lacks, which has about StateBytes
	// bytes. The checkpoints beyond those tokens become those of the snapshot. A sequence
	// restored in this way can run when all its tokens have been restored; after an error
	// it does not exist.
	SnapshotFrom(w io.Writer, id model.SeqID, tokens []int32, from int) error
	RestoreFrom(r io.Reader, id model.SeqID, before []int32) ([]int32, error)
	StateBytes(id model.SeqID, from, length int) int64
	// Prepare checks a step and allocates what it needs, so that Run cannot run out of
	// memory. Its error is model.ErrNoMemory or says what is wrong with the step. The
	// memory belongs to the sequences and is kept until they are dropped.
	Prepare(step model.Step) error
	// Run runs the last prepared step. It is Forward without its checks.
	Run(ctx context.Context) ([][]float32, error)
	// Digest returns the checksums of the last Run [layers+1]: the choice of experts of
	// each layer, then the final hidden state. Equal steps give equal digests on all
	// ranks.
	Digest() []uint32
	// Extent and Examine are those of decoder.Model: checksums of a part of the model with
	// any placement. Examine does not run during a step.
	Extent() model.Extent
	Examine(p model.Piece) ([]model.Sum, error)
	// LayerStats returns the counts of each layer [layers] since Load.
	LayerStats() []parallel.LayerStats
	// Exchanges returns the counts of the exchanges of each layer [layers+1] since Load,
	// those of the output head last. It may be called at any time.
	Exchanges() [][]parallel.Exchange
}

// Cluster is the part of *cluster.Leader that Leader uses.
type Cluster interface {
	// Epoch returns the running epoch, or the error that ended it, which names the rank.
	Epoch() (cluster.Epoch, error)
	// State returns what Epoch does, and whether the next epoch is forming by itself after
	// a loss. Both describe the same moment.
	State() (e cluster.Epoch, recovering bool, err error)
	// Await is Epoch but waits for the next epoch while State is recovering.
	Await(ctx context.Context) (cluster.Epoch, error)
	// Reads returns what the ranks of the forming or running epoch have to read.
	Reads() cluster.Reads
	// Recruit waits for a rank that has prepared to join the epoch and lacks sequences,
	// until ctx or the cluster ends.
	Recruit(ctx context.Context) (*cluster.Recruit, error)
	// Begin numbers a piece of work and sends it to the followers.
	Begin(epoch uint32, payload []byte) (n uint64, err error)
	// End reports that this rank has done work n, and waits until all ranks
	// have done it and agree on its digest. Its error is the verdict.
	End(ctx context.Context, n uint64, d cluster.Digest) error
	// EndLater is End without waiting. End of later work waits for it.
	EndLater(n uint64, d cluster.Digest)
	// Fail ends the epoch because of this rank and returns the verdict.
	Fail(epoch uint32, cause error) error
	// Reports asks the followers for their reports, [size] by rank; those of rank 0 and of
	// ranks outside the epoch are nil.
	Reports(ctx context.Context) ([][]byte, error)
}
