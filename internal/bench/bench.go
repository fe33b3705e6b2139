// Package bench measures a loaded model on one host or on the ranks of a group: the
// prefill of empty sequences, the decode of one or several, and saving and restoring the
// state of a sequence. Run measures a Target and prints the results.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"ringmaster/groupplan"
	"ringmaster/internal/host"
	"ringmaster/internal/picture"
	"ringmaster/kernels/cpu"
	"ringmaster/kernels/profile"
	"ringmaster/kernels/record"
	"ringmaster/model"
	"ringmaster/model/calibrate"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// DefaultDepth is the default of Options.Depths.
const DefaultDepth = groupplan.DecodeDepth

// Options say what is measured, and how it is printed.
type Options struct {
	Prefill   []int  // lengths in tokens; 0: none
	Decode    int    // tokens; 0: none
	Depths    []int  // tokens of a sequence before the decode
	Sequences []int  // sequences that decode together; several numbers take turns
	Drafts    []int  // drafts of each of them that a step runs and does not keep; several take turns
	Snapshot  int    // tokens of a sequence to save and restore; 0: none
	Repeat    int    // repetitions of each measurement
	State     string // file of a sequence's state after the only depth; empty: evaluated
	JSON      bool   // print a line of JSON for each measurement
	SVG       string // file for a picture of the rates; empty: none
	Report    string // file for a report that a person can attach to an issue; empty: none
	Layers    bool   // in a group, print the times of each layer
	// Activations are the precisions of the CPU's activations. Several take turns; they
	// need a backend without a group.
	Activations     []cpu.Activations
	Profile, Stream bool // report the time of each op; measure the bandwidth of the memory beside the decode
}

// Held returns how many sequences are held at once.
func (o Options) Held() int {
	held := slices.Max(o.Sequences)
	if o.Snapshot > 0 {
		return max(held, 2) // the saved one and the restored one
	}
	return held
}

// Target is the model that is measured.
type Target struct {
	Model   model.Model
	Profile *profile.Switch // around the backend
	Record  *record.Backend // the same in a group, otherwise nil
	CPU     *cpu.Backend    // nil on a GPU
	GPU     GPU             // nil on a CPU
	Kernels string          // what computes, and on which system
	Threads int
	Loaded  time.Duration // time of loading
	// Memory returns the host's.
	Memory func() (host.Memory, bool)
	Group  Group // nil outside a group
}

// Group is what the leader knows about the ranks.
type Group interface {
	// Reports returns the statistics of all ranks.
	Reports(ctx context.Context) ([]replica.Report, error)
	// Expect returns what the cost model expects of the work, false if the group was not
	// measured.
	Expect(ctx context.Context, w calibrate.Work) (cost.Estimate, bool, error)
	// LeaderCosts returns those of rank 0's ops, false if they were not measured.
	LeaderCosts() (cost.Model, bool)
}

// bench runs measurements on a target.
type bench struct {
	o          Options
	t          Target
	w          io.Writer
	firstToken time.Duration // since the start of loading
	peakMiB    float64       // before the buffer of a bandwidth measurement
	buffered   bool          // a bandwidth measurement has had its buffer
	next       model.SeqID
	cores      int // of the GPU, for a report; 0: not known
}

// Run measures and prints. start is when loading began.
func Run(ctx context.Context, w io.Writer, start time.Time, t Target, o Options) error {
	b := &bench{o: o, t: t, w: w}
	if err := b.run(ctx, start); err != nil || o.Snapshot == 0 {
		return err
	}
	return b.snapshot(ctx, o.Snapshot)
}

// run measures prefill and decode and prints. A length or decode of 0 is skipped.
func (b *bench) run(ctx context.Context, start time.Time) error {
	all := b.o.plan()
	if err := b.check(all); err != nil {
		return err
	}
	if err := b.first(ctx); err != nil {
		return err
	}
	b.firstToken = time.Since(start)
	for _, t := range all {
		if err := b.measure(ctx, t); err != nil {
			return err
		}
		for _, m := range t {
			m.Threads, m.LoadS, m.FirstTokenS = b.t.Threads, b.t.Loaded.Seconds(), b.firstToken.Seconds()
			b.memory(m)
			if err := b.print(m); err != nil {
				return err
			}
		}
		if err := b.compare(t); err != nil {
			return err
		}
	}
	if b.o.SVG != "" {
		if err := picture.Write(b.o.SVG, charts(slices.Concat(all...))...); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	if b.o.Report != "" {
		b.cores = gpuCores(ctx)
		if err := b.report(slices.Concat(all...)); err != nil {
			return err
		}
	}
	if b.o.JSON || len(all) == 0 {
		return nil
	}
	last := all[len(all)-1]
	return b.printSummary(last[len(last)-1])
}

// first evaluates a prompt of one token.
func (b *bench) first(ctx context.Context) error {
	r := b.newRunner(&Measurement{N: 1, Sequences: 1})
	if err := r.advance(ctx, 0, 1, 1); err != nil {
		return err
	}
	return r.drop(ctx)
}
