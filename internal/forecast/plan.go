// Package forecast predicts what a model needs and how fast it can be on hosts that need
// not exist. Open reads the model or a preset's shape, and Plan divides it as the leader
// of a group would and predicts steps by the cost model from the rates of the hosts.
package forecast

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringmaster/gguf"
	"ringmaster/groupplan"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// Options say what is planned.
type Options struct {
	Model, Preset string // a file, or the name of a shape; exactly one of them
	Experts       string // type of the preset's routed experts; empty: its own
	Hosts         []Hosts
	Link          Link
	Context       int // in tokens; 0: the most that fits
	MaxTokens     int // in one step; 0: see groupplan.Options
	Sequences     int // held at once
	Share         groupplan.Share
	Stages        groupplan.Stages
	Reduce        parallel.Reduce
	Reach         float64 // fraction of the hosts' rates that ops are assumed to reach
	Heap          int64   // bytes of Go's heap on each host
}

// Forecaster plans one model on hosts.
type Forecaster struct {
	Options
	hosts  []Host
	on     decoder.OnGPU // what of the model graphics cards compute, on each host
	file   *gguf.File
	done   func()            // frees the file
	tracer *calibrate.Tracer // nil until it is needed
	sizes  []sized           // of groups, nil until they are needed
}

// Open opens the model, or makes its shape.
func Open(o Options) (*Forecaster, error) {
	hosts, err := expand(o.Hosts)
	if err != nil {
		return nil, err
	}
	f, done, err := o.open()
	if err != nil {
		return nil, err
	}
	out := &Forecaster{Options: o, hosts: hosts, file: f, done: done}
	if err := out.placeOnCards(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	out.settleSteps()
	return out, nil
}

// settleSteps settles the most tokens of a step, one number for all that is compared.
func (o *Forecaster) settleSteps() {
	if o.MaxTokens > 0 {
		return
	}
	options := o.plans()
	options.Lone = len(o.hosts) == 1
	o.MaxTokens = decoder.DefaultMaxTokens
	if errors.Join(o.Share.Check(len(o.hosts)), o.Stages.Check(len(o.hosts), o.Share)) != nil {
		return // Plan refuses them
	}
	if p, err := options.PlanOrStages(members(o.hosts), 0); err == nil { // else Plan says why not
		o.MaxTokens = p.Settings.MaxTokens
	}
}

// plans are the options of the plans of a group.
func (o *Forecaster) plans() groupplan.Options {
	return groupplan.Options{Model: o.file, Sequences: o.Sequences, Context: o.Context, MaxTokens: o.MaxTokens, Reduce: o.Reduce, Share: o.Share, Stages: o.Stages, Heap: o.Heap}
}

// Close frees the model.
func (o *Forecaster) Close() error {
	defer o.done()
	return o.closeTracer()
}

func (o *Forecaster) closeTracer() error {
	if o.tracer == nil {
		return nil
	}
	return o.tracer.Close()
}

// Outcome is a plan, plus what one more host like the last would add, or how many hosts
// the model needs.
type Outcome struct {
	*Plan
	// GPUs are what of the model is on the GPU of each host.
	GPUs []groupplan.Card `json:"gpus,omitempty"`
	// Parts are the parts of the model that the GPUs could compute, with their speeds.
	Parts []Part `json:"gpu_parts,omitempty"`
	// Alternatives are the values of --share, and Recommended is the one to take.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	Recommended  string        `json:"recommended,omitempty"`

	Further *Plan  `json:"further,omitempty"`
	Note    string `json:"further_note,omitempty"` // about one more host
}

// Plan plans the model on the hosts. A model that does not fit is not an error.
func (o *Forecaster) Plan() (Outcome, error) {
	p, err := o.plan(o.hosts)
	if err != nil {
		return Outcome{}, err
	}
	if p.Fits && predictable(o.hosts) {
		if p.Predicted, err = o.predict(p, o.hosts); err != nil {
			return Outcome{}, err
		}
	}
	all, recommended, err := o.compare(p)
	if err != nil {
		return Outcome{}, err
	}
	parts, err := o.parts(p)
	if err != nil {
		return Outcome{}, err
	}
	more, note, err := o.further(p)
	return Outcome{p, cards(o.hosts), parts, all, recommended, more, note}, err
}

// Plan is the result of planning.
type Plan struct {
	Model    string     `json:"model"`
	Weights  int64      `json:"weights"`               // bytes
	Tables   int64      `json:"tables,omitempty"`      // bytes of tables that stay on each rank's disk
	Reads    int64      `json:"table_reads,omitempty"` // bytes of their rows that a token reads
	Fits     bool       `json:"fits"`
	Why      string     `json:"why,omitempty"` // why it does not fit
	Context  int        `json:"context,omitempty"`
	Limit    int        `json:"context_limit"`
	Share    string     `json:"share"`              // experts or all
	Stages   string     `json:"stages,omitempty"`   // the layers of each, inside of which Share is divided
	Expected string     `json:"expected,omitempty"` // what was chosen, and why, in one line
	Ranks    []RankNeed `json:"ranks,omitempty"`
	// Caches is bytes of all sequences on each rank, at most; with stages on rank 0, of its
	// layers.
	Caches   int64   `json:"kv_caches,omitempty"`
	Sequence int64   `json:"kv_sequence,omitempty"`
	Bounds   *Bounds `json:"bounds,omitempty"`
	// Predicted is nil if a rate of a host is unknown.
	Predicted []Prediction `json:"predicted,omitempty"`
	ranks     []decoder.RankPlan
	plan      decoder.Plan
	placement parallel.Placement
	sums      int                 // exchanged sums of a row in a step
	open      decoder.OpenOptions // to predict steps
}

// RankNeed is the memory of one rank in bytes.
type RankNeed struct {
	Host
	Layers   parallel.Range `json:"layers"` // zero: all
	Experts  parallel.Range `json:"experts"`
	Resident int64          `json:"resident"` // with one sequence of full length, without copies
	Copies   int64          `json:"copies"`   // of other ranks' experts
	Free     int64          `json:"free"`     // what Resident leaves of the offer
}

// plan returns the plan that the leader of a group of hosts would make. A model that does
// not fit is not an error.
func (o *Forecaster) plan(hosts []Host) (*Plan, error) {
	if err := errors.Join(o.Share.Check(len(hosts)), o.Stages.Check(len(hosts), o.Share)); err != nil {
		return nil, usage.Wrap(err)
	}
	options := o.plans()
	options.Lone = len(hosts) == 1
	open := decoder.OpenOptions{Context: o.Context, MaxTokens: o.MaxTokens, Reduce: o.Reduce}
	if o.Context == 0 {
		open.Context = groupplan.LeastContext
	}
	p, err := arch.Plan(o.file, open, o.Sequences)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	if o.Context > p.ContextLimit {
		return nil, usage.Errorf("--ctx is %d; the model allows at most %d", o.Context, p.ContextLimit)
	}
	out := &Plan{Model: p.Name, Weights: p.Weights(), Tables: p.Tables, Reads: p.TableReadBytes, Limit: p.ContextLimit, Share: o.Share.Of.String()}
	if o.Share.Helper {
		out.Share = what(o.Share)
	}
	group, err := options.PlanOrStages(members(hosts), 0)
	if usage.Is(err) {
		return nil, err
	}
	if err != nil {
		out.Why = strings.ReplaceAll(err.Error(), o.file.Path(), p.Name)
		return out, nil
	}
	open.Context = min(group.Settings.Context, groupplan.LeastContext)
	out.open = open
	if group, err = o.decide(out, group, options, hosts); err != nil {
		return nil, err
	}
	settings := group.Settings
	out.plan, out.ranks, out.placement = group.Model, group.Ranks, settings.Placement
	out.Fits, out.Context, out.Caches, out.Sequence = true, settings.Context, settings.SequenceBudget, out.plan.PerSequence()
	for r, one := range group.Ranks {
		needs := one.Resident() - one.CopyBytes
		if hosts[r].on() == decoder.AllOnGPU { // which does not hold the program
			needs -= hosts[r].card.Program
		}
		out.Ranks = append(out.Ranks, RankNeed{hosts[r], one.Part.Layers, one.Part.Experts, needs, one.CopyBytes, hosts[r].Offer - needs})
	}
	out.sums = out.plan.Sums(group.Share)
	reads, err := o.reads(out, len(hosts))
	if err != nil {
		return nil, err
	}
	b := decodeBounds(out.plan, reads, hosts, o.Link, out.sums)
	if out.placement.Staged() {
		out.Stages = groupplan.StagesOf(out.placement).String()
		b = stagesBounds(out.plan, out.placement, reads, hosts, o.Link.network(hosts))
	}
	out.Bounds = &b
	return out, nil
}

// further returns the plan with one more host like the last, or how many hosts the model
// needs.
func (o *Forecaster) further(p *Plan) (*Plan, string, error) {
	if len(o.Share.Shares.Numbers) > 0 || o.Stages.Ranks != nil || o.Share.Helper {
		return nil, "", nil // the shares are given by rank, or the ranks of each stage, or there are two
	}
	for n := len(o.hosts) + 1; n <= groupplan.MaxRanks; n++ {
		last := o.hosts[len(o.hosts)-1:]
		more, err := o.plan(append(slices.Clone(o.hosts), slices.Repeat(last, n-len(o.hosts))...))
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
