package replica

import (
	"context"

	"ringmaster/distributed"
	"ringmaster/distributed/cluster"
	"ringmaster/model/calibrate"
	"ringmaster/parallel"
)

// Planner decides on rank 0 what the ranks of each epoch do. Its methods may be called by
// any goroutine.
type Planner interface {
	// Plan decides the settings of an epoch from the hellos of its members. It must return
	// quickly and must not call the cluster.
	Plan(members []cluster.Hello, past Past) (Settings, error)
	// Fits returns why Plan would fail, or nil, and has no effect.
	Fits(members []cluster.Hello, past Past) error
	// Reads returns the bytes of the file that member i of a placement reads and did not
	// need for its previous part; nil means that it has read nothing.
	Reads(s Settings, i int, before *parallel.Part) int64
	// Lost returns the bytes of the routed experts of the last plan that none of the parts has.
	Lost(parts []parallel.Part) int64
	// Choose chooses among the placements of settings with Measure, by the measurements of
	// the epoch's ranks.
	Choose(ctx context.Context, costs calibrate.Costs, placements []parallel.Placement) Choice
}

// Past is what outlives the previous epochs.
type Past struct {
	Ran  bool  // steps may have run, so that the ranks may hold sequences
	Held int64 // bytes of the sequences
}

// Host is the process of a rank, on every rank.
type Host interface {
	// Load makes the model of the rank. It uses all settings except Placement, which is
	// for Join, and SequenceBudget.
	Load(s Settings, rank int) (Rank, error)
	// Measure is calibrate.Measure with the rank's model, which then has no sequences. All
	// ranks of a new group call it at the same time, before their models join it. An error
	// ends the epoch.
	Measure(ctx context.Context, g *distributed.Group, rank Rank, p parallel.Placement) (calibrate.Costs, error)
	// ResidentBytes returns the memory that the process uses, 0 if unknown.
	ResidentBytes() int64
}
