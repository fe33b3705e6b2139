package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/forecast"
	"ringmaster/internal/picture"
	"ringmaster/parallel"
)

// newPlan builds the command that plans a model on hosts that need not be there.
func newPlan() *cobra.Command {
	var o forecast.Options
	var asJSON, asTable bool
	var svg string
	cmd := &cobra.Command{
		Use:   "plan --host 512GiB,800GB/s [--host ...] --preset v4-flash | --model F",
		Short: "Say what a model needs on which hosts, before there are any",
		Long: `Divides a model among hosts exactly as the leader of a group would, and prints
the memory of each rank against what it can offer, the context that fits, what no
group of them can be faster than, and what one more host would bring. It needs
neither the hosts nor, with --preset, the weights.

A host is
` + strings.Replace(forecast.HostForm, forecast.CardForm, "\n"+forecast.CardForm, 1) + `,
such as ` + forecast.HostExample + `
or ` + forecast.CardExample + `.
Without offer= it offers 95% of its memory, a Mac 75%. With gpu=, the memory that
a graphics card has free, it says what of the model the card holds (all, all but
the routed experts, or nothing), and how many bytes it lacks for more. RATE,
SPEED, op= and wait= before gpu= are those of the host, behind it those of the
card. With them it predicts each of the three that fits.

The bound of decoding divides the bytes that a token must read by the rate of the
memory, and adds the least bytes on the wire; it counts no latency, no arithmetic
and no KV cache. A real group is slower.

With the speed of each host in float operations, prefill and decode are predicted
by the cost model of --share auto: all ops and exchanges of all ranks, from the
given rates and latencies in place of measured ones. ringmaster bench measures.

Exit code 0: it fits; 4: it does not; 2: the command cannot work as it was given.`,
		Example: `  ringmaster plan --preset v4-flash --host 128GiB,546GB/s,mac,x2 --link rdma
  ringmaster plan --preset v4-flash --host 512GiB,819GB/s,28TFLOP/s,mac --link roce-25g --table
  ringmaster plan --preset v4-flash --host 192GiB,80GB/s,2TFLOP/s,gpu=24GiB,936GB/s,35TFLOP/s
  ringmaster plan --model F.gguf --host 64GiB --host 32GiB --share experts:memory --json`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			alone := cmd.Flags().Changed("preset") && !cmd.Flags().Changed("model")
			err := flagsOnly(cmd, args)
			if alone { // RINGMASTER_MODEL is that of the server of this host
				o.Model = ""
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd.OutOrStdout(), o, asTable, asJSON, svg) },
	}
	f := cmd.Flags()
	flags.File(f, &o.Model, "model,m", "GGUF `file` (the first part of a split file)")
	flags.OneOf(f, &o.Preset, "preset", "", forecast.PresetNames(), "`shape` of a model without its file: "+strings.Join(forecast.PresetNames(), ", "))
	flags.Parsed(f, &o.Experts, "experts", "", expertsForm, checkExperts, "`type` of the preset's routed experts, such as q4_k (the default of most), q8_0 or iq2_xxs")
	flags.TypedList(f, &o.Hosts, "host", false, forecast.HostSyntax, forecast.ParseHosts, "a `host`, in the order of the ranks; may be repeated")
	flags.Propose(flags.Typed(f, &o.Link, "link", "10g", forecast.LinksForm, forecast.ParseLinks, "`link` between the hosts: rdma, roce-25g, 1g, 10g, 25g, 100g, ..., a rate such as 3GB/s, or with its latency 3GB/s,20us; rdma+1g is rdma between the hosts of one --host and 1g between the others"), "rdma", "roce-25g", "1g", "10g", "25g", "100g")
	flags.Int(f, &o.Context, "ctx,c", 0, flags.From(0), "context in tokens; 0 is the most that fits")
	flags.Int(f, &o.MaxTokens, "max-batch", 0, flags.From(0), "most tokens in one step; 0 is 2048 on Macs and cards that hold the model and have room, else 512")
	flags.Int(f, &o.Sequences, "sequences", 16, flags.From(1), "sequences of the full context that memory is planned for: --max-active of a server and its --cache-entries, or 8")
	flags.Propose(flags.Typed(f, &o.Share, "share", groupplan.AutoShare, shareForm, groupplan.ParseShare, "what is divided among the hosts: experts, or all; or auto: what is predicted to be faster, experts if a rate is not known; or helper: the second of two hosts computes the last layers of prompts. With shares after a colon, all:2,1,1 or all:memory, else in equal parts"), shareWords...)
	flags.Typed(f, &o.Stages, "stages", "", stagesForm, groupplan.ParseStages, "divide the layers into `stages` on hosts of their own, as serve does: 2, 0-21,22-42 or 0-21:2,22-42:1")
	flags.WordOf(f, &o.Reduce, "reduce", "sum", reduceWords, parallel.ParseReduce, "how expert outputs are added: sum or exact")
	flags.Float(f, &o.Reach, "reach", forecast.Reached, flags.Within(0.01, 1.0), "`part` of the hosts' rates that ops are taken to reach in predictions")
	flags.Bool(f, &asTable, "table", false, "print predictions for 1, 2, 4 and 8 hosts like the one given, as Markdown")
	flags.Out(f, &svg, "svg", "", "also draw them: `file` for a picture of the speed by the number of hosts")
	flags.Bool(f, &asJSON, "json", false, "print JSON")
	return cmd
}

// runPlan plans, prints, and says by its error whether the model fits.
func runPlan(w io.Writer, o forecast.Options, asTable, asJSON bool, svg string) (err error) {
	if err := flags.CheckOut("svg", svg); err != nil {
		return err
	}
	serve := &serveOptions{}
	serve.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // for the defaults
	o.Heap = serve.Heap(0)
	f, err := forecast.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if svg != "" {
		charts, err := f.Charts()
		if err != nil {
			return err
		}
		if err := picture.Write(svg, charts...); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	if asTable {
		return f.Table(w)
	}
	p, err := f.Plan()
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(p)
	} else {
		err = p.Write(w, o.Reach)
	}
	if err == nil && !p.Fits {
		return &verdict{4, "plan: it does not fit: " + p.Why}
	}
	return err
}
