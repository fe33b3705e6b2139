package web

import (
	"context"
	"time"
)

// Source reports the state of the ranks.
type Source interface {
	// Status returns the state of the group, or of this one rank, without Now and Engine.
	// It returns soon, at the latest when ctx ends, with what it knows by then.
	Status(ctx context.Context) Status
}

// Status is the body of GET /cluster/status. Counts only grow while their rank and epoch
// last, so that the page can compute rates from two of them. Times are in seconds.
type Status struct {
	Now time.Time `json:"now"`
	// Model is the name of the served model, "" while none is loaded.
	Model string `json:"model"`
	// Phase is "running" if tokens can be produced, otherwise what the group does:
	// gathering, loading, connecting, starting or stopped.
	Phase     string   `json:"phase"`
	Reason    string   `json:"reason,omitempty"` // why it does not run
	Epoch     uint32   `json:"epoch,omitempty"`  // 0 without a group
	Transport string   `json:"transport"`        // kind: tcp, rdma, mpi, local; "" between epochs
	Topology  string   `json:"topology,omitempty"`
	Notes     []string `json:"notes,omitempty"` // corrections and omissions when the group formed
	Whole     Share    `json:"whole"`           // what there is to divide
	// Imbalance is of the routed experts since the model was loaded, nil before any step
	// of a group.
	Imbalance *Imbalance `json:"imbalance,omitempty"`
	Ranks     []Rank     `json:"ranks"`  // by rank
	Events    []Event    `json:"events"` // oldest first, a bounded number
	// Recoveries counts steps that a loss interrupted and that ran again.
	Recoveries uint64  `json:"recoveries"`
	Engine     *Engine `json:"engine,omitempty"` // nil until one exists
}

// Imbalance is what the busiest rank of each step and layer computed over the mean of all.
type Imbalance struct {
	Rows  float64 `json:"rows"` // each once for each of its experts
	Bytes float64 `json:"bytes"`
}

// Rank is one rank.
type Rank struct {
	Rank  int     `json:"rank"`
	State string  `json:"state"` // absent, lost, joining, forming, member, leaving or out
	Why   string  `json:"why,omitempty"`
	For   float64 `json:"for,omitempty"` // how long it stays out, in seconds
	// Host and Address are also those of a lost rank, as it had them.
	Host    string `json:"host,omitempty"`
	Address string `json:"address,omitempty"`
	Backend string `json:"backend,omitempty"`
	Threads int    `json:"threads,omitempty"`
	// Offered is the memory that the rank offers for the model and Memory what its
	// process holds, including weights in the page cache, both in bytes; 0 if unknown.
	Offered int64   `json:"offered,omitempty"`
	Memory  int64   `json:"memory,omitempty"`
	Share   *Share  `json:"share,omitempty"` // of a member
	Steps   uint64  `json:"steps"`
	Tokens  uint64  `json:"tokens"`
	Busy    float64 `json:"busy"` // time in steps
	// Sent and Received are bytes of the running epoch.
	Sent     uint64  `json:"sent"`
	Received uint64  `json:"received"`
	Layers   []Layer `json:"layers,omitempty"` // [layers], since the model was loaded
}

// Share is a rank's part of each layer and of the output head, as half-open ranges.
type Share struct {
	Layers     [2]int `json:"layers,omitzero"` // of the rank's stage; none if all ranks have all layers
	Experts    [2]int `json:"experts"`
	Copies     int    `json:"copies,omitempty"` // of other ranks' experts, in a layer on average
	Heads      [2]int `json:"heads"`            // groups of attention heads
	Vocabulary [2]int `json:"vocabulary"`
}

// Layer is the time of a layer on a rank by kind.
type Layer struct {
	Compute   float64 `json:"compute"`
	Waiting   float64 `json:"waiting"` // for the slowest rank
	Wire      float64 `json:"wire"`    // while data travels
	Overflows uint64  `json:"overflows,omitempty"`
}

// Event is an entry in the list of events.
type Event struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"` // formed, ended, joined, lost, out, leaves, repeated or note
	Rank int       `json:"rank"` // -1: of no rank
	Text string    `json:"text"`
}

// Engine is the engine's counters.
type Engine struct {
	Queued          int    `json:"queued"`
	MaxQueued       int    `json:"max_queued"`
	Active          int    `json:"active"`
	MaxActive       int    `json:"max_active"`
	CacheEntries    int    `json:"cache_entries"` // entries of the prefix cache
	MaxCacheEntries int    `json:"max_cache_entries"`
	Prefilled       uint64 `json:"prefill_tokens"` // prompt tokens that were run
	Cached          uint64 `json:"cached_tokens"`  // prompt tokens found in the prefix cache
	Generated       uint64 `json:"generated_tokens"`
	Steps           uint64 `json:"steps"`
	DecodeRows      uint64 `json:"decode_rows"`   // sequences that decoded, summed over the steps
	Memory          int64  `json:"memory"`        // bytes of KV caches, on each rank
	MemoryBudget    int64  `json:"memory_budget"` // 0: no limit
}
