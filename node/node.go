// Package node is the life of a rank: it opens the model, runs it alone or leads or follows
// a group, and leaves. Options have types; where they come from is not its concern.
//
//	n := node.New(options)
//	if err := n.Start(ctx); err != nil { // alone, or as rank 0 of a group
//		return err
//	}
//	defer n.Close()
//	logits, err := n.Model.Forward(ctx, step)
//
// A rank other than 0 calls Follow in place of Start.
package node

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/groupplan"
	"ringmaster/internal/usage"
	"ringmaster/kernels"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/profile"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/model/tokenizer"
	"ringmaster/parallel"
)

// Options say which model a node runs, on what, and in which group.
type Options struct {
	File        File
	Compute     Compute
	Block       Block         // for multi-token prediction
	KeepWired   time.Duration // of the GPU's memory, after the last step; 0: as long as the program runs
	Level       cpu.Level     // instruction set of the CPU kernels
	Activations cpu.Activations
	Threads     int // of the CPU kernels; 0 is one per core, at most what a CPU quota allows

	Context    int // most positions of a sequence; 0 is the most that the model allows and memory holds
	MaxTokens  int // most tokens of a step; 0: see groupplan.Options
	Sequences  int // held at once
	Reduce     parallel.Reduce
	Memory     int64 // bytes that the process may use besides the mapped weights, 0 for the free memory
	Overcommit bool  // start even if more memory is needed than is free
	Heap       int64 // bytes for Go's heap, stacks and runtime, without what depends on the plan

	Verify    bool // read the whole file first: every weight is a finite number, and all ranks have the same
	Tokenizes bool // the vocabulary is used, too
	Profile   bool // ops can be measured
	Measure   bool // a group is measured even if nothing is to be chosen
	Portable  bool // sequences are copied from rank 0 to its disk, so that they are not divided for speed alone

	// Popularity is a file in which a leader keeps how often experts were chosen; empty for
	// none.
	Popularity string

	Group *Group    // nil: alone
	Plans io.Writer // where plans are printed, for people
}

// Node is a rank and the resources that it uses. Its fields are set by Open and by Start.
type Node struct {
	o       Options
	popular popularity // of a leader

	// By Open.
	File    *gguf.File
	Tokens  *tokenizer.Tokenizer // if Options.Tokenizes
	Kernels string               // what computes; must be the same on all ranks, for identical bits
	Threads int                  // of the CPU kernels, 0 on a GPU
	Backend kernels.Backend
	CPU     *cpu.Backend    // Backend or within it; nil on a GPU
	GPU     GPU             // Backend or within it; nil on a CPU
	Profile *profile.Switch // within Backend; nil unless Options.Profile
	Record  *record.Backend // the same as Backend; nil without a group

	// By Start.
	Model   model.Model
	Leader  *Leader        // nil without a group
	Took    time.Duration  // from the beginning of Start
	Heap    int64          // of the plan, for Go
	AtMost  int64          // of the plan, beside the mapped weights
	Weights int64          // of the plan, mapped on this rank
	Sizes   parallel.Sizes // of the model that this host runs alone

	blockFile *gguf.File // of the block for multi-token prediction, perhaps File; nil: none
	hasBlock  bool       // it was planned with the model

	math    string // cpu.MathBits; must be the same on all ranks; "" on a GPU
	gpu     gpuMemory
	onGPU   onGPU // if the GPU's memory is its own, or the CPU computes the experts
	autoGPU bool  // auto chose the GPU: the CPU may do in its place
	isMetal bool  // that GPU is a Mac's, whose memory is the host's
	forming atomic.Pointer[cluster.Leader]
	between atomic.Pointer[func(ctx context.Context, f func()) error]
}

// New makes a node that has not begun.
func New(o Options) *Node { return &Node{o: o} }

// Progress describes what Start waits for.
func (n *Node) Progress() string {
	if l := n.Cluster(); l != nil {
		if _, err := l.Epoch(); err != nil {
			return err.Error()
		}
	}
	return "the model is loading"
}

// Cluster is the group that is forming or running; nil before it is, and without one. It
// may be called at any time.
func (n *Node) Cluster() *cluster.Leader { return n.forming.Load() }

// Start opens the model, prints the memory plan, checks it against the memory of the host
// and loads the model. With a group it is rank 0, and loads the model on all ranks.
func (n *Node) Start(ctx context.Context) error {
	start := time.Now()
	if err := n.Open(ctx); err != nil {
		return err
	}
	var err error
	if n.o.Group != nil {
		err = n.lead(ctx)
	} else {
		err = n.withGPULimit(n.alone())
		if err != nil && n.replaceable(err) {
			err = n.aloneOnCPU(err)
		}
	}
	if err != nil {
		n.Close()
		return err
	}
	n.Took = time.Since(start)
	return nil
}

// Open opens the file and the backend, and checks the file if that is wanted. It is the
// beginning of Start and Follow; whoever calls it alone calls Close.
func (n *Node) Open(ctx context.Context) error {
	err := n.open(ctx)
	if err != nil {
		n.Close()
	}
	return err
}

func (n *Node) open(ctx context.Context) (err error) {
	if n.File, err = n.o.File.Open(); err != nil {
		return err
	}
	if n.o.Tokenizes { // before the time that loading takes
		if n.Tokens, err = tokenizer.FromGGUF(n.File); err != nil {
			return usage.Wrap(err)
		}
	}
	if n.o.Verify {
		if err = checkWeights(ctx, n.File); err != nil {
			return err
		}
	}
	if err = n.openBackend(); err != nil {
		return err
	}
	if err = n.openBlock(); err != nil {
		return err
	}
	n.wrapBackend()
	return nil
}

// wrapBackend puts what watches ops around the backend that has been opened.
func (n *Node) wrapBackend() {
	if n.o.Profile {
		n.Profile = profile.NewSwitch(n.Backend, time.Now)
		n.Backend = n.Profile
	}
	if n.o.Group != nil {
		n.Record = record.Wrap(n.Backend)
		n.Backend = n.Record
	}
}

// planOptions are the options of the plan.
func (n *Node) planOptions() groupplan.Options {
	p := groupplan.Options{Model: n.File, Sequences: n.o.Sequences, Context: n.o.Context, MaxTokens: n.o.MaxTokens, Reduce: n.o.Reduce,
		Overcommit: n.o.Overcommit, Heap: max(n.o.Heap, groupplan.LeastHeap), Measure: n.o.Measure, Portable: n.o.Portable, Chosen: n.popular.counts, DraftFile: n.blockFile, DraftSpared: !n.o.Block.Use}
	if g := n.o.Group; g != nil {
		p.Share, p.Stages = g.Share, g.Stages
	}
	return p
}

// alone loads the whole model on this host.
func (n *Node) alone() error {
	memory, known := n.offered()
	plan, text, err := n.planOptions().Alone(groupplan.Room{Memory: memory, Known: known, Limit: n.o.Memory, Threads: n.Threads,
		OnGPU: n.onGPU.what, GPU: n.onGPU.bytes})
	if _, printed := io.WriteString(n.o.Plans, text); err == nil {
		err = printed
	}
	if err != nil {
		return err
	}
	n.Heap, n.AtMost, n.Sizes, n.Weights = plan.Heap, plan.AtMost(), plan.Sizes, plan.Weights()
	n.hasBlock = plan.DraftWeights > 0
	m, err := arch.Open(n.File, n.Backend, decoder.OpenOptions{Context: plan.Context, MaxTokens: plan.MaxTokens, Reduce: n.o.Reduce, SequenceBudget: plan.Budget, DraftFile: n.blockOf(n.hasBlock)})
	if err != nil {
		return err
	}
	if err := m.HoldWeights(); err != nil {
		_ = m.Close() // the reason is why it has no room
		return err
	}
	n.Model = m
	return nil
}

// Close ends the group, if there is one, and frees the model.
func (n *Node) Close() {
	var stuck error
	if n.Leader != nil {
		stuck = n.Leader.close()
		n.popular.close()
	} else if n.Model != nil {
		stuck = n.Model.Close()
	}
	n.free(stuck)
}

// free frees the resources of the model. If a step still uses them, the exit of the
// process frees them.
func (n *Node) free(stuck error) {
	if stuck != nil {
		slog.Warn("a step is still running at exit", "error", stuck)
		return
	}
	if n.Backend != nil {
		n.Backend.Close()
	}
	if n.blockFile != nil && n.blockFile != n.File {
		n.blockFile.Close()
	}
	if n.File != nil {
		n.File.Close()
	}
}
