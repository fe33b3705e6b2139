package main

import (
	"time"

	"github.com/spf13/cobra"

	"ringmaster/groupplan"
	"ringmaster/internal/bench"
	"ringmaster/internal/flags"
	"ringmaster/internal/usage"
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
				return follow(cmd.Context(), o.options())
			}
			if err := flags.CheckOut("state", b.State); err != nil {
				return err
			}
			if b.State != "" && (o.cluster.on || b.Sequences > 1) {
				return usage.Errorf("--state keeps one sequence of one host; start bench without --distributed and --sequences")
			}
			start := time.Now()
			opts := o.options()
			opts.Profile, opts.Measure, opts.Sequences, opts.Plans = true, true, b.Held(), cmd.ErrOrStderr()
			n := node.New(opts)
			if err := n.Start(cmd.Context()); err != nil {
				return err
			}
			defer n.Close()
			return bench.Run(cmd.Context(), cmd.OutOrStdout(), start, target(n), b)
		},
	}
	flags.Ints(cmd.Flags(), &b.Prefill, "prefill", []int{512}, flags.From(0), "prefill lengths in tokens, separated by commas; 0 measures no prefill")
	flags.Int(cmd.Flags(), &b.Decode, "decode", 64, flags.From(0), "tokens to decode; 0 measures no decode")
	flags.Int(cmd.Flags(), &b.Snapshot, "snapshot", 0, flags.From(0), "save the state of a sequence of so many tokens to memory and restore it; 0 measures no snapshot")
	flags.Int(cmd.Flags(), &b.Depth, "depth", bench.DefaultDepth, flags.From(0), "tokens of a sequence before the decode; 0 is none")
	flags.Out(cmd.Flags(), &b.State, "state", "", "`file` with the state of a sequence after --depth tokens, written if it does not exist, so that a long depth is evaluated once")
	flags.Int(cmd.Flags(), &b.Sequences, "sequences", 1, flags.From(1), "sequences that decode together, one token of each per step")
	flags.Int(cmd.Flags(), &b.Repeat, "repeat", 3, flags.From(1), "repetitions of each measurement")
	flags.Bool(cmd.Flags(), &b.JSON, "json", false, "print each measurement as a line of JSON")
	flags.Bool(cmd.Flags(), &b.Layers, "layers", false, "in a group, print the times of each layer")
	flags.Bool(cmd.Flags(), &b.Profile, "profile", false, "print the time of each op (in a group, of rank 0)")
	flags.Bool(cmd.Flags(), &b.Stream, "stream", true, "with the decode, measure the memory bandwidth that the threads reach")
	return cmd
}

// measured is a group for package bench.
type measured struct {
	*replica.Leader
	*groupplan.Planner
}

// target is the model of a node for package bench.
func target(n *node.Node) bench.Target {
	t := bench.Target{Model: n.Model, Profile: n.Profile, Record: n.Record, CPU: n.CPU, Threads: n.Threads, Loaded: n.Took, Memory: n.SystemMemory}
	if n.Leader != nil {
		t.Group = measured{n.Leader.Steps, n.Leader.Planner}
	}
	return t
}
