package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringmaster/groupplan"
	"ringmaster/internal/bench"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
	"ringmaster/kernels/cpu"
	"ringmaster/node"
	"ringmaster/replica"
)

func newBench(o *modelOptions) *cobra.Command {
	var b bench.Options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the speed of prefill and decode",
		Long: `bench measures
- the time from the start of loading to the first token after a prompt of one token;
- the prefill of an empty sequence, for each length of --prefill;
- the decode of single tokens after 128 tokens, or after each of several numbers
  (--depth), for one sequence or for several that share each step (--sequences);
- the state of a sequence saved to memory and restored, with --snapshot.
With --state the tokens before the decode are evaluated once and kept in a file, for
runs that differ in their threads.
Tokens are random with a fixed seed.

Several values of --sequences, of --drafts, and of --activations on one host, take
turns in each repetition. A table then shows the time of a step for each value and its ratio to
that of the first, with --profile also of each op.

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
which is slightly slower. On a GPU with a clock its time is shown too.

With --report everything is in one Markdown file without names of hosts and paths:
program, system, device, speeds, on a GPU what a step asks of it and how long the
host waits, each op in a repetition of its own, the bandwidth by type of weights,
and beside each what is expected of a Mac's chip, where something is.`,
		Example: `  ringmaster bench --model F.gguf
  ringmaster bench --model F.gguf --prefill 512,4096 --decode 128 --sequences 8 --json
  ringmaster bench --model F.gguf --prefill 0 --decode 64 --profile
  ringmaster bench --model F.gguf --prefill 0 --sequences 1,2,4,8 --profile
  ringmaster bench --model F.gguf --activations 15,8
  ringmaster bench --model F.gguf --prefill 2048 --depth 4096 --report speed.md
  ringmaster bench --model F.gguf --depth 128,2048,8192 --svg speed.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.cluster.mpiFollower() {
				return follow(cmd.Context(), o.options())
			}
			if err := flags.CheckOut("state", b.State); err != nil {
				return err
			}
			if err := flags.CheckOut("svg", b.SVG); err != nil {
				return err
			}
			if err := flags.CheckOut("report", b.Report); err != nil {
				return err
			}
			if b.Report != "" && b.Profile {
				return usage.Errorf("--report measures each op in a repetition of its own, because that slows the others; leave out --profile")
			}
			if b.State != "" && len(b.Depths) > 1 {
				return usage.Errorf("--state keeps one sequence; give one --depth")
			}
			several := len(b.Activations) > 1
			if b.State != "" && (o.cluster.on || slices.Max(b.Sequences) > 1 || several) {
				return usage.Errorf("--state keeps one sequence of one host in one precision; start bench without --distributed, --sequences and a second value of --activations")
			}
			if several && o.cluster.on {
				return usage.Errorf("--activations: several precisions are measured on one host, and a group agrees on one; give one value, or start bench without --distributed")
			}
			start := time.Now()
			opts := o.options()
			opts.Profile, opts.Measure, opts.Sequences, opts.Plans = true, true, b.Held(), cmd.ErrOrStderr()
			opts.Activations = b.Activations[0]
			n := node.New(opts)
			if err := n.Start(cmd.Context()); err != nil {
				return err
			}
			defer n.Close()
			return bench.Run(cmd.Context(), cmd.OutOrStdout(), start, target(n), b)
		},
	}
	flags.Typed(cmd.Flags(), &b.Activations, "activations", cpu.Bits15.String(), activationsForm, parseActivations, "bits of the activations that quantised weights are multiplied by, on the CPU: 15, 8, or 15,8 to compare them")
	flags.Ints(cmd.Flags(), &b.Drafts, "drafts", []int{0}, flags.Within(0, bench.MostDrafts), "wrong drafts of each sequence that a decode step runs, to see what drafts cost; several numbers are compared; 0 is none")
	flags.Under(cmd.Flags(), headingPerformance)
	flags.Ints(cmd.Flags(), &b.Prefill, "prefill", []int{512}, flags.From(0), "prefill lengths in tokens, separated by commas; 0 measures no prefill")
	flags.Int(cmd.Flags(), &b.Decode, "decode", 64, flags.From(0), "tokens to decode; 0 measures no decode")
	flags.Int(cmd.Flags(), &b.Snapshot, "snapshot", 0, flags.From(0), "save the state of a sequence of so many tokens to memory and restore it; 0 measures no snapshot")
	flags.Ints(cmd.Flags(), &b.Depths, "depth", []int{bench.DefaultDepth}, flags.From(0), "tokens of a sequence before the decode, separated by commas; 0 is none")
	flags.Out(cmd.Flags(), &b.State, "state", "", "`file` with the state of a sequence after --depth tokens, written if it does not exist, so that a long depth is evaluated once")
	flags.Ints(cmd.Flags(), &b.Sequences, "sequences", []int{1}, flags.From(1), "sequences that decode together, one token of each per step; several numbers are compared")
	flags.Int(cmd.Flags(), &b.Repeat, "repeat", 3, flags.From(1), "repetitions of each measurement")
	flags.Out(cmd.Flags(), &b.SVG, "svg", "", "`file` for a picture of decode by --depth and prefill by length")
	flags.Out(cmd.Flags(), &b.Report, "report", "", "`file` for a report of speeds, counts and waits, to attach to an issue")
	flags.Bool(cmd.Flags(), &b.JSON, "json", false, "print each measurement as a line of JSON")
	flags.Bool(cmd.Flags(), &b.Layers, "layers", false, "in a group, print the times of each layer")
	flags.Bool(cmd.Flags(), &b.Profile, "profile", false, "print the time of each op (in a group, of rank 0)")
	flags.Bool(cmd.Flags(), &b.Stream, "stream", true, "with the decode, measure the memory bandwidth that the threads reach")
	return cmd
}

// parseActivations reads precisions, separated by commas.
func parseActivations(text string) ([]cpu.Activations, error) {
	var all []cpu.Activations
	for word := range strings.SplitSeq(text, ",") {
		a, err := cpu.ParseActivations(word)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// measured is a group for package bench.
type measured struct {
	*replica.Leader
	*groupplan.Planner
}

// target is the model of a node for package bench.
func target(n *node.Node) bench.Target {
	t := bench.Target{Model: n.Model, Profile: n.Profile, Record: n.Record, CPU: n.CPU, Kernels: n.Kernels, Threads: n.Threads, Loaded: n.Took, Memory: n.SystemMemory}
	if n.GPU != nil {
		t.GPU = n.GPU
	}
	if n.Leader != nil {
		t.Group = measured{n.Leader.Steps, n.Leader.Planner}
	}
	return t
}
