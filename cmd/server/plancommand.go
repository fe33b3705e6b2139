package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringmaster/gguf"
	"ringmaster/groupplan"
	"ringmaster/internal/flags"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
)

// planPresets are the presets of true shapes by the names of the models.
var planPresets = map[string]string{
	"v4-flash": "flash", "v4-pro": "pro", "v2-lite": "v2-lite", "v2": "v2", "v3": "v3", "r1": "v3", "k2": "k2", "moonlight": "moonlight", "glm-flash": "glm-flash",
	"v3.2": "v32", "glm-5": "glm5",
}

// planOptions are the flags of plan.
type planOptions struct {
	model, preset, experts, link string
	hosts                        []string
	ctx, batch, sequences        int
	share                        parallel.Share
	shares                       groupplan.Shares
	reduce                       parallel.Reduce
	micro                        groupplan.Micro
	reach                        float64
	asJSON, asTable              bool
	tracer                       *calibrate.Tracer // nil before it is needed
}

// planned is the outcome of a plan.
type planned struct {
	Model    string     `json:"model"`
	Weights  int64      `json:"weights"` // bytes
	Fits     bool       `json:"fits"`
	Why      string     `json:"why,omitempty"` // it does not fit
	Context  int        `json:"context,omitempty"`
	Limit    int        `json:"context_limit"`
	Share    string     `json:"share"`
	Ranks    []rankNeed `json:"ranks,omitempty"`
	Caches   int64      `json:"kv_caches,omitempty"` // bytes of all sequences on each rank, at most
	Sequence int64      `json:"kv_sequence,omitempty"`
	Bounds   *bounds    `json:"bounds,omitempty"`
	// Predicted is nil if a rate of a host is unknown.
	Predicted []prediction `json:"predicted,omitempty"`
	ranks     []decoder.RankPlan
	plan      decoder.Plan
	placement parallel.Placement
	sums      int                 // of a row, in a step
	open      decoder.OpenOptions // to predict steps
}

// rankNeed is the memory of one rank in bytes.
type rankNeed struct {
	planHost
	Experts  parallel.Range `json:"experts"`
	Resident int64          `json:"resident"` // with one sequence of full length
	Free     int64          `json:"free"`     // of the offer
}

// newPlan builds the command that plans a model on hosts that need not be there.
func newPlan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan --host 512GiB,800GB/s [--host ...] --preset v4-flash | --model F",
		Short: "Say what a model needs on which hosts, before there are any",
		Long: `Divides a model among hosts exactly as the leader of a group would, and prints
the memory of each rank against what it can offer, the context that fits, what no
group of them can be faster than, and what one more host would bring. It needs
neither the hosts nor, with --preset, the weights.

A host is ` + hostForm + `,
such as ` + hostExample + `.
Without offer= it offers 95% of its memory, a Mac 75%.

The bound of decoding divides the bytes that a token must read by the rate of the
memory, and adds the least bytes on the wire; it counts no latency, no arithmetic
and no KV cache. A real group is slower.

With the speed of each host in float operations, prefill and decode are predicted
by the cost model of --share auto: all ops and exchanges of all ranks, from the
given rates and latencies in place of measured ones. ringmaster bench measures.

Exit code 0: it fits; 4: it does not; 2: the command cannot work as it was given.`,
		Example: `  ringmaster plan --preset v4-flash --host 128GiB,546GB/s,mac,x2 --link rdma
  ringmaster plan --preset v4-flash --host 512GiB,819GB/s,28TFLOP/s,mac --link roce-25g --table
  ringmaster plan --model F.gguf --host 64GiB --host 32GiB --shares memory --json`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			alone := cmd.Flags().Changed("preset") && !cmd.Flags().Changed("model")
			err := flagsOnly(cmd, args)
			if alone { // RINGMASTER_MODEL is that of the server of this host
				o.model = ""
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	flags.File(f, &o.model, "model,m", "GGUF `file` (the first part of a split file)")
	flags.OneOf(f, &o.preset, "preset", "", presetNames(), "`shape` of a model without its file: "+strings.Join(presetNames(), ", "))
	flags.Parsed(f, &o.experts, "experts", "", expertsForm, checkExperts, "`type` of the preset's routed experts, such as q4_k (the default of most), q8_0 or iq2_xxs")
	flags.ParsedList(f, &o.hosts, "host", false, hostSyntax, checkHost, "a `host`, in the order of the ranks; may be repeated")
	flags.Parsed(f, &o.link, "link", "10g", linkForm, checkLink, "`link` between the hosts: rdma, roce-25g, 1g, 10g, 25g, 100g, ..., a rate such as 3GB/s, or with its latency 3GB/s,20us")
	flags.Int(f, &o.ctx, "ctx,c", 0, flags.From(0), "context in tokens; 0 is the most that fits")
	flags.Int(f, &o.batch, "max-batch", 512, flags.From(1), "most tokens in one step")
	flags.Int(f, &o.sequences, "sequences", 16, flags.From(1), "sequences that are held at once: --max-active and --sessions of a server")
	flags.WordOf(f, &o.share, "share", "experts", []string{"experts", "all"}, parallel.ParseShare, "what is divided: experts, or all")
	flags.WordOf(f, &o.micro, "micro-batches", "never", []string{"never", "auto"}, groupplan.ParseMicro, "run long steps as two micro-batches in predictions: never, or auto, where it is expected to be faster")
	flags.Typed(f, &o.shares, "shares", "", sharesForm, groupplan.ParseShares, "division among the hosts: `2,1,1`, or memory; empty is even")
	flags.WordOf(f, &o.reduce, "reduce", "sum", reduceWords, parallel.ParseReduce, "how expert outputs are added: sum or exact")
	flags.Float(f, &o.reach, "reach", reached, flags.Within(0.01, 1.0), "`part` of the hosts' rates that ops are taken to reach in predictions")
	flags.Bool(f, &o.asTable, "table", false, "print predictions for 1, 2, 4 and 8 hosts like the one given, as Markdown")
	flags.Bool(f, &o.asJSON, "json", false, "print JSON")
	return cmd
}

func presetNames() []string {
	var names []string
	for n := range planPresets {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// run plans, prints, and says by its error whether the model fits.
func (o *planOptions) run(w io.Writer) (err error) {
	hosts, err := parseHosts(o.hosts)
	if err != nil {
		return err
	}
	link, err := parseLink(o.link)
	if err != nil {
		return err
	}
	f, done, err := o.open()
	if err != nil {
		return err
	}
	defer done()
	defer func() { err = errors.Join(err, o.close()) }()
	if o.asTable {
		return o.table(w, f, hosts, link)
	}
	p, err := o.plan(f, hosts, link)
	if err != nil {
		return err
	}
	if p.Fits && predicts(hosts) {
		if p.Predicted, err = o.predict(f, p, hosts, link); err != nil {
			return err
		}
	}
	more, note, err := o.further(f, hosts, link, p)
	if err != nil {
		return err
	}
	if o.asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(struct {
			*planned
			Further *planned `json:"further,omitempty"` // with one more host like the last, or as many as it takes
			Note    string   `json:"further_note,omitempty"`
		}{p, more, note})
	} else {
		err = p.write(w, note, o.reach)
	}
	if err == nil && !p.Fits {
		return &verdict{4, "plan: it does not fit: " + p.Why}
	}
	return err
}

// open opens the model, or writes the preset's shape with holes for the weights.
func (o *planOptions) open() (f *gguf.File, done func(), err error) {
	if (o.model == "") == (o.preset == "") {
		return nil, nil, usage.Errorf("give --model FILE, or --preset with one of %s", strings.Join(presetNames(), ", "))
	}
	if o.model != "" {
		if o.experts != "" {
			return nil, nil, usage.Errorf("--experts is the type of a preset's experts; a file has its own")
		}
		if f, err = arch.OpenFile(o.model); err != nil {
			return nil, nil, modelFile(err)
		}
		if err := arch.CheckTensors(f); err != nil {
			return nil, nil, errors.Join(modelFile(err), f.Close())
		}
		return f, func() { f.Close() }, nil // nothing is written
	}
	name, ok := planPresets[o.preset]
	if !ok {
		return nil, nil, usage.Errorf("--preset is %q; expected one of %s", o.preset, strings.Join(presetNames(), ", "))
	}
	c, err := synthetic.Preset(name)
	if err != nil {
		return nil, nil, err
	}
	c.Name = "the shape of " + o.preset
	if o.experts != "" {
		if err := c.SetExperts(o.experts); err != nil {
			return nil, nil, usage.Errorf("--experts: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "ringmaster-plan-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { os.RemoveAll(dir) } // what is left of it lies with other temporary files
	path := filepath.Join(dir, o.preset+".gguf")
	if _, err = c.WriteFile(path); err == nil {
		f, err = gguf.Open(path)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("%s: %w; set TMPDIR to a file system with sparse files", c.Name, err)
	}
	return f, func() { f.Close(); remove() }, nil
}

// plan is the plan of the leader of a group of hosts. A model that does not fit is no
// error.
func (o *planOptions) plan(f *gguf.File, hosts []planHost, link planLink) (*planned, error) {
	serve := &serveOptions{}
	serve.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // for the defaults
	if err := o.shares.Check(len(hosts)); err != nil {
		return nil, usage.Wrap(err)
	}
	options := groupplan.Options{Model: f, Sequences: o.sequences, Context: o.ctx, MaxTokens: o.batch, Reduce: o.reduce,
		Share: groupplan.Share{Of: o.share}, Shares: o.shares, Heap: serve.heap(0)}
	open := decoder.OpenOptions{Context: o.ctx, MaxTokens: o.batch, Reduce: o.reduce}
	if o.ctx == 0 {
		open.Context = groupplan.LeastContext
	}
	p, err := arch.Plan(f, open, o.sequences)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	if o.ctx > p.ContextLimit {
		return nil, usage.Errorf("--ctx is %d; the model allows at most %d", o.ctx, p.ContextLimit)
	}
	out := &planned{Model: p.Name, Weights: p.Weights(), Limit: p.ContextLimit, Share: o.share.String()}
	group, err := options.Plan(members(hosts), 0)
	if err != nil {
		out.Why = strings.ReplaceAll(err.Error(), f.Path(), p.Name)
		return out, nil
	}
	settings := group.Settings
	out.plan, out.ranks, out.placement = group.Model, group.Ranks, settings.Placement
	out.Fits, out.Context, out.Caches, out.Sequence = true, settings.Context, settings.SequenceBudget, out.plan.PerSequence()
	for r, one := range group.Ranks {
		out.Ranks = append(out.Ranks, rankNeed{hosts[r], one.Part.Experts, one.Resident(), hosts[r].Offer - one.Resident()})
	}
	open.Context = min(settings.Context, groupplan.LeastContext)
	out.sums, out.open = out.plan.Sums(o.share), open
	reads, err := o.reads(f, out, len(hosts))
	if err != nil {
		return nil, err
	}
	b := decodeBounds(out.plan, reads, hosts, link, out.sums)
	out.Bounds = &b
	return out, nil
}

// further says what one more host like the last would bring, or how many it takes.
func (o *planOptions) further(f *gguf.File, hosts []planHost, link planLink, p *planned) (*planned, string, error) {
	if len(o.shares.Numbers) > 0 {
		return nil, "", nil // they are by rank
	}
	for n := len(hosts) + 1; n <= 8; n++ {
		more, err := o.plan(f, append(slices.Clone(hosts), slices.Repeat(hosts[len(hosts)-1:], n-len(hosts))...), link)
		if err != nil || !more.Fits && p.Fits {
			return nil, "", err
		}
		if !more.Fits {
			continue
		}
		text := fmt.Sprintf("with %d hosts, the further ones like the last: ", n)
		if !p.Fits {
			text += fmt.Sprintf("it fits, context %d", more.Context)
		} else {
			text += fmt.Sprintf("context %d (now %d), KV caches %s (now %s)", more.Context, p.Context, units.Bytes(more.Caches), units.Bytes(p.Caches))
		}
		if more.Bounds.Decode > 0 {
			text += fmt.Sprintf(", decode at most %.1f tokens/s", more.Bounds.Decode)
		}
		return more, text, nil
	}
	if !p.Fits {
		return nil, "eight hosts like these do not hold it either", nil
	}
	return nil, "", nil
}

// write prints a plan for people.
func (p *planned) write(w io.Writer, further string, reach float64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of weights, at most %d tokens of context\n", p.Model, units.Bytes(p.Weights), p.Limit)
	if p.Fits {
		fmt.Fprintf(&b, "it fits: context of %d tokens, one such sequence takes %s; KV caches of all together at most %s on each rank; --share %s\n",
			p.Context, units.Bytes(p.Sequence), units.Bytes(p.Caches), p.Share)
		t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "rank\tmemory\toffers\tneeds\tleft\texperts\tread for a token\t  limit\t\n")
		for i, r := range p.Ranks {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d-%d\t%s\t  %s\t\n", i, units.Bytes(r.Memory), units.Bytes(r.Offer), units.Bytes(r.Resident), units.Bytes(r.Free),
				r.Experts.Start, r.Experts.End-1, units.Bytes(p.Bounds.Bytes[i]), r.Limit)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if p.Bounds.Decode > 0 {
			fmt.Fprintf(&b, "decode of one sequence: at most %.1f tokens/s, by the memory of rank %d and the %s that each rank receives; latency, arithmetic and KV cache are not counted\n",
				p.Bounds.Decode, p.Bounds.Slow, units.Bytes(p.Bounds.Wire))
		} else {
			b.WriteString("decode: no bound without the rates of all memories (--host 64GiB,40GB/s; ringmaster doctor measures them)\n")
		}
		writePredictions(&b, p.Predicted, reach)
	} else {
		fmt.Fprintf(&b, "it does not fit: %s\n", p.Why)
	}
	if further != "" {
		fmt.Fprintf(&b, "%s\n", further)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
