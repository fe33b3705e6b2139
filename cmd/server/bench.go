package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
	"ringmaster/model"
)

// decodeDepth is the default of --depth: how many tokens a sequence has before
// its decode is measured.
const decodeDepth = groupplan.DecodeDepth

func newBench(o *modelOptions) *cobra.Command {
	var b bench
	var prefill []int
	var decode, saved int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the speed of prefill and decode",
		Long: `bench measures
- the time from the start of loading to the first token after a prompt of one token;
- the prefill of an empty sequence, for each length of --prefill;
- the decode of single tokens after 128 tokens (--depth), for one sequence or for
  several that share each step (--sequences);
- the state of a sequence saved to memory and restored, with --snapshot.
With --state the tokens before the decode are evaluated once and kept in a file, for
runs that differ in their threads.
Tokens are random with a fixed seed.

The decode is shown with the bytes of weights read per token and with the memory
bandwidth that the same threads reach when they only read, measured alternately
with it (--stream; cpu backend on one host only). The buffer for that, 1 GiB or
more, is not included in the memory figures.

In a group the compute, wait and wire times of each rank are shown too, of whole
steps and by the purpose of each exchange (with --layers of each layer); computing
is attributed to the exchange that follows. Memory and bytes are those of rank 0.
The group is measured when it forms, and beside each measurement stands what the
cost model expects of it.

With --profile the time of each op is shown; the ops then run one at a time,
which is slightly slower.`,
		Example: `  ringmaster bench --model F.gguf
  ringmaster bench --model F.gguf --prefill 512,4096 --decode 128 --sequences 8 --json
  ringmaster bench --model F.gguf --prefill 0 --decode 64 --profile`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.cluster.mpiFollower() {
				return o.follow(cmd.Context())
			}
			if err := flags.CheckOut("state", b.state); err != nil {
				return err
			}
			if b.state != "" && (o.cluster.on || b.sequences > 1) {
				return usage.Errorf("--state keeps one sequence of one host; start bench without --distributed and --sequences")
			}
			start := time.Now()
			o.profile, o.expect = true, true
			sequences := b.sequences
			if saved > 0 {
				sequences = max(sequences, 2) // that of the snapshot and the restored one
			}
			l, err := o.load(cmd.Context(), cmd.ErrOrStderr(), sequences)
			if err != nil {
				return err
			}
			defer l.close()
			b.l, b.threads, b.w, b.o = l, l.threads, cmd.OutOrStdout(), o
			if err := b.run(cmd.Context(), start, prefill, decode); err != nil || saved == 0 {
				return err
			}
			return b.snapshot(cmd.Context(), saved)
		},
	}
	flags.Ints(cmd.Flags(), &prefill, "prefill", []int{512}, flags.From(0), "prefill lengths in tokens, separated by commas; 0 measures no prefill")
	flags.Int(cmd.Flags(), &decode, "decode", 64, flags.From(0), "tokens to decode; 0 measures no decode")
	flags.Int(cmd.Flags(), &saved, "snapshot", 0, flags.From(0), "tokens of a sequence whose state is saved to memory and restored; 0 measures no snapshot")
	flags.Int(cmd.Flags(), &b.depth, "depth", decodeDepth, flags.From(0), "tokens of a sequence before the decode; 0 is none")
	flags.Out(cmd.Flags(), &b.state, "state", "", "`file` with the state of a sequence after --depth tokens, written if it does not exist, so that a long depth is evaluated once")
	flags.Int(cmd.Flags(), &b.sequences, "sequences", 1, flags.From(1), "sequences that decode together, one token of each per step")
	flags.Int(cmd.Flags(), &b.repeat, "repeat", 3, flags.From(1), "repetitions of each measurement")
	flags.Bool(cmd.Flags(), &b.json, "json", false, "print each measurement as a line of JSON")
	flags.Bool(cmd.Flags(), &b.layers, "layers", false, "in a group, print the times of each layer")
	flags.Bool(cmd.Flags(), &b.profile, "profile", false, "print the time of each op (in a group, of rank 0)")
	flags.Bool(cmd.Flags(), &b.stream, "stream", true, "with the decode, measure the memory bandwidth that the threads reach")
	return cmd
}

// bench runs measurements on a loaded model.
type bench struct {
	o                *modelOptions
	l                *loaded
	repeat           int
	depth, sequences int
	threads          int
	w                io.Writer
	state            string // file of a sequence's state after depth tokens; empty: evaluated
	json             bool
	layers           bool
	profile, stream  bool
	firstToken       time.Duration // from the start of loading
	peakMiB          float64       // before the buffer of a bandwidth measurement
	buffered         bool          // a bandwidth measurement has had its buffer
	next             model.SeqID
}

// run measures and prints. start is when loading began; lengths are the prefill
// lengths; a length or decode of 0 is skipped.
func (b *bench) run(ctx context.Context, start time.Time, lengths []int, decode int) error {
	var all []*measurement
	for _, n := range lengths {
		all = append(all, &measurement{What: "prefill", N: n, Sequences: 1})
	}
	all = append(all, &measurement{What: "decode", N: decode, Sequences: b.sequences, Depth: b.depth})
	all = slices.DeleteFunc(all, func(m *measurement) bool { return m.N == 0 })
	for _, m := range all {
		if limit := b.l.model.Info().ContextLength; m.N+m.Depth > limit {
			return fmt.Errorf("%s of %d tokens after %d does not fit the context of %d", m.What, m.N, m.Depth, limit)
		}
	}
	if err := b.first(ctx); err != nil {
		return err
	}
	b.firstToken = time.Since(start)
	for _, m := range all {
		m.Threads, m.LoadS, m.FirstTokenS = b.threads, b.l.took.Seconds(), b.firstToken.Seconds()
		if err := b.measure(ctx, m); err != nil {
			return err
		}
		b.memory(m)
		if err := b.print(m); err != nil {
			return err
		}
	}
	if b.json || len(all) == 0 {
		return nil
	}
	return b.printSummary(all[len(all)-1])
}

// first evaluates a prompt of one token.
func (b *bench) first(ctx context.Context) error {
	r := b.newRunner(&measurement{N: 1, Sequences: 1})
	if err := r.advance(ctx, 0, 1, 1); err != nil {
		return err
	}
	return r.drop(ctx)
}

// measure runs the repetitions of m. The first is a warm-up that maps the pages
// of the file: its time is not counted, but its ops give the bytes per token of a
// decode.
func (b *bench) measure(ctx context.Context, m *measurement) error {
	info := b.l.model.Info()
	// A repetition rewinds the sequence if it can be rewound so far, instead of
	// building up the depth again.
	rewinds := m.Depth > 0 && m.N <= info.Rewind
	perStep := info.MaxTokens
	if m.What == "decode" {
		perStep = 1
	}
	ops := b.l.profile
	var bandwidth bandwidthMeter
	defer bandwidth.close()
	var r *runner
	for i := range b.repeat + 1 {
		if r == nil {
			var err error
			if r, err = b.begin(ctx, m); err != nil {
				return err
			}
		}
		before, err := b.reports(ctx)
		if err != nil {
			return err
		}
		if i <= 1 {
			ops.Profile.Reset()
		}
		ops.Measure(i == 0 || b.profile)
		b.expectOps(i > 0 && b.profile)
		start := time.Now()
		err = r.advance(ctx, m.Depth, m.N, perStep)
		took := time.Since(start).Seconds()
		ops.Measure(false)
		b.expectOps(false)
		if err != nil {
			return err
		}
		after, err := b.reports(ctx)
		if err != nil {
			return err
		}
		if i > 0 {
			m.Seconds = append(m.Seconds, took)
			m.Ranks = addTimes(m.Ranks, between(before, after))
			bandwidth.read()
		} else if m.What == "decode" {
			m.BytesPerToken = weightBytes(ops.Profile.Ops()) / int64(m.N*m.Sequences)
			bandwidth = b.openBandwidth()
			bandwidth.read()
		}
		if !rewinds || i == b.repeat {
			if err := r.drop(ctx); err != nil {
				return err
			}
			r = nil
		}
	}
	if b.profile {
		m.ops = ops.Profile.Ops()
	}
	bandwidth.report(m)
	return b.expect(ctx, m)
}
