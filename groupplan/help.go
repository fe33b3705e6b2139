package groupplan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/calibrate"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/parallel/cost"
	"ringmaster/replica"
)

// helperShare is the Share with which rank 1 helps rank 0 with prompts.
const helperShare = "helper"

// HelpPrompt is the tokens of the prompt by which the layers of a helper are chosen, and
// leastHelped the rows of the shortest step that may go through it.
const (
	HelpPrompt  = 2048
	leastHelped = 32
)

// helpGain is the part of the time that a step through the helper must save: more than what
// expectations are often wrong by, so that no prompt takes longer than on rank 0 alone.
const helpGain = 0.1

// checkHelper refuses what a helper cannot have.
func (s Share) checkHelper(ranks int) error {
	switch {
	case !s.Helper:
	case ranks != 2:
		return fmt.Errorf("--share helper is for two ranks: rank 1 helps rank 0 with prompts; there are %d. Use --share auto or --stages", ranks)
	case s.Shares.Memory:
		return errors.New("--share helper:memory: give the speeds of both ranks instead, such as helper:1,3, or none, so that they are measured")
	}
	return nil
}

// halved are the layers of rank 0's part of a helped step, and those of the helper.
func halved(first, layers int) Stages {
	return Stages{Count: 2, Layers: []parallel.Range{{End: first}, {Start: first, End: layers}}, Ranks: []int{1, 1}}
}

// withHelper is Plan for rank 0 with the whole model and, unless it is away, rank 1 as its helper.
func (o Options) withHelper(members []cluster.Hello, held int64) (Planned, error) {
	o, left := o.spare()
	if o.DraftFile != nil {
		return Planned{}, errors.New("--share helper: the block for multi-token prediction needs the hidden states of all tokens of a prompt, and rank 0 gets few from the helper; use --drafts text or off")
	}
	if len(members) == 1 { // the same model as with the helper
		p, err := o.divide(o.Share.Of, members, held)
		p.Settings.Helper = true
		return p, err
	}
	plan, err := arch.Plan(o.Model, o.open(), 1)
	if err != nil {
		return Planned{}, err
	}
	firsts := possible(plan.Splits)
	if len(firsts) == 0 {
		return Planned{}, usage.Errorf("--share helper: the layers of %s cannot be divided between two ranks", o.Model.Path())
	}
	last := firsts[len(firsts)-1]
	whole, err := o.fitContext(func(p decoder.Plan) bool {
		_, _, err := o.planHelper(members, p, last, held)
		return err == nil
	})
	if err != nil {
		return Planned{}, err
	}
	// The helper has as many layers as it has room for, until costs have chosen.
	least := last
	for _, first := range firsts {
		if _, _, err := o.planHelper(members, whole, first, held); err == nil {
			least = first
			break
		}
	}
	first := least
	if len(o.Share.Shares.Numbers) == 2 {
		s := Stages{Count: 2, Ranks: []int{1, 1}}
		if s.Layers, err = o.evenStages(s, o.Share.Shares.Numbers, plan); err != nil {
			return Planned{}, err
		}
		first = s.Layers[1].Start
	}
	at := func(first int) (Planned, error) {
		ranks, budget, err := o.planHelper(members, whole, first, held)
		if err != nil {
			return Planned{}, err
		}
		sizes := whole.Sizes
		sizes.Layers = whole.Layers
		p, err := parallel.WithHelper(sizes, first, parallel.Help{Rows: unmeasuredRows, Missing: whole.CarriedRow})
		if err != nil {
			return Planned{}, err
		}
		text := o.saysHelper(members, whole, ranks, first, budget)
		if left {
			text += noBlock("the helper keeps the hidden states that it would continue")
		}
		return Planned{
			Settings: replica.Settings{Context: whole.Context, MaxTokens: o.MaxTokens, Reduce: o.Reduce, Placement: p, SequenceBudget: budget, Helper: true},
			Share:    o.Share.Of, Model: whole, Ranks: ranks, Heap: own(whole, 0, o.Heap).heap, AtMost: ranks[0].Buffers + budget,
			Text: text, least: least,
		}, nil
	}
	planned, err := at(first)
	planned.helper = at
	return planned, err
}

// possible lists the layers with which a helper may begin.
func possible(splits []bool) (list []int) {
	for layer := 1; layer < len(splits); layer++ {
		if splits[layer] {
			list = append(list, layer)
		}
	}
	return list
}

// planHelper plans both ranks if the helper begins with a layer; budget is of the KV caches on
// rank 0.
func (o Options) planHelper(members []cluster.Hello, whole decoder.Plan, first int, held int64) (ranks []decoder.RankPlan, budget int64, err error) {
	alone, err := whole.Place(parallel.ShareExperts, []float64{1})
	if err != nil {
		return nil, 0, err
	}
	home := whole.ForRank(0, alone)
	both, err := o.planStages(halved(first, whole.Layers), members, []float64{1, 1}, whole.Context)
	if err != nil {
		return nil, 0, err
	}
	helper := both.ranks[1]
	// Besides rows, the state of a piece waits on both ranks.
	state := helper.Sequence / int64(whole.Context) * int64(o.MaxTokens)
	home.Rank, home.Buffers = members[0].Rank, o.rest(whole, members[0], home.Buffers+decoder.StageBytes(o.MaxTokens, 2, whole.CarriedRow)+state)
	helper.Buffers += state
	ranks = []decoder.RankPlan{home, helper}
	budget = o.budget(whole, members[:1], ranks[:1])
	ratio := float64(helper.Sequence) / float64(home.Sequence)
	for _, room := range []int64{members[1].OwnMemory - helper.Buffers, members[1].Memory - helper.Resident() + helper.Sequence} {
		if room > -helper.Buffers && (members[1].OwnMemory > 0 || members[1].Memory > 0 && !o.Overcommit) {
			budget = min(budget, int64(float64(room)/ratio))
		}
	}
	return ranks, budget, o.refuse(members, ranks, budget, held)
}

// saysHelper is the plan for people.
func (o Options) saysHelper(members []cluster.Hello, whole decoder.Plan, ranks []decoder.RankPlan, first int, budget int64) string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s: %s; context of %d tokens; --share helper\n", whole.Name, whole.Summary, whole.Context)
	fmt.Fprintf(&w, "%s has the whole model; its helper %s has layers %d to %d, for prompts\n", members[0].Name(), members[1].Name(), first, whole.Layers-1)
	names := make([]string, len(members))
	for r, m := range members {
		names[r] = strings.TrimSpace(m.Host + " " + m.Data)
	}
	_ = decoder.WriteRanks(&w, ranks, names...) // a string takes all
	fmt.Fprintf(&w, "KV caches of all sequences: at most %s on rank %d\n", units.Bytes(budget), members[0].Rank)
	return w.String()
}

// helped is what is expected of a helper.
type helped struct {
	first, rows int
	missing     int64   // see parallel.Help
	alone, with float64 // seconds of the prompt
}

// chooseHelper chooses the layers of the helper so that a prompt takes the least time, and from
// how many rows on a step goes through it; rows is 0 if rank 0 alone is as fast.
func (c *chooser) chooseHelper(ctx context.Context, p Planned) (h helped, err error) {
	if c.costs.Missing != "" || len(c.costs.Models) != 2 {
		return h, fmt.Errorf("the ranks could not be measured: %s", c.costs.Missing)
	}
	t, err := c.tracer()
	if err != nil {
		return h, err
	}
	sizes := p.Model.Sizes
	one, err := parallel.Place(parallel.ShareExperts, sizes, []float64{1})
	if err != nil {
		return h, err
	}
	alone := calibrate.Costs{Models: c.costs.Models[:1], Links: c.costs.Links}
	prompt := min(HelpPrompt, c.o.Context-1)
	h.alone, err = c.aloneSeconds(ctx, t, one, alone, prompt, p.Model.Stairs)
	if err != nil {
		return h, err
	}
	with := func(first, rows int) (float64, error) { return c.helpedSeconds(ctx, t, p.Model, first, rows) }
	var firsts []int
	for _, first := range possible(p.Model.Splits) {
		if first >= p.least {
			firsts = append(firsts, first)
		}
	}
	// Rank 0 has more to do the more layers it has, the helper less: one of two neighbours in
	// the middle is nearer to the best.
	times := map[int]float64{}
	at := func(i int) (float64, error) {
		if s, ok := times[i]; ok {
			return s, nil
		}
		s, err := with(firsts[i], prompt)
		times[i] = s
		return s, err
	}
	low, high := 0, len(firsts)-1
	for low < high {
		middle := (low + high) / 2
		a, err := at(middle)
		if err != nil {
			return h, err
		}
		b, err := at(middle + 1)
		if err != nil {
			return h, err
		}
		if a <= b {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if h.with, err = at(low); err != nil {
		return h, err
	}
	h.first = firsts[low]
	if h.with > (1-helpGain)*h.alone {
		return h, nil
	}
	gain := 0.0 // seconds of a row of the shortest step
	for n := min(c.o.MaxTokens, prompt); n >= leastHelped; n /= 2 {
		single, err := c.aloneSeconds(ctx, t, one, alone, n, p.Model.Stairs)
		if err != nil {
			return h, err
		}
		together, err := with(h.first, n)
		if err != nil {
			return h, err
		}
		if together > (1-helpGain)*single {
			break
		}
		h.rows, gain = n, (single-together)/float64(n)
	}
	// What the helper lacks may cost half of what it saves.
	if perByte := c.costs.Links[cost.Message].PerByte; perByte > 0 {
		h.missing = int64(math.Min(gain/2/perByte, 1<<40))
	} else {
		h.missing = 1 << 40
	}
	return h, nil
}

// aloneSeconds is what a prompt takes on rank 0 alone.
func (c *chooser) aloneSeconds(ctx context.Context, t *calibrate.Tracer, p parallel.Placement, costs calibrate.Costs, prompt int, stairs bool) (sum float64, err error) {
	until := 0
	if stairs {
		until = prompt
	}
	for at := 0; at < prompt; {
		n := min(prompt-at, c.o.MaxTokens)
		e, err := t.Expect(ctx, p, costs, calibrate.Work{Rows: n, Pos: at, Until: until})
		if err == nil && len(e.Unknown) > 0 {
			err = fmt.Errorf("the cost of %v was not measured", e.Unknown)
		}
		if err != nil {
			return 0, err
		}
		sum, at = sum+e.Seconds, at+n
	}
	return sum, nil
}

// helpedSeconds is what a prompt takes through rank 0 and its helper: as through two stages,
// and the state of the last piece of each step, which arrives when both wait.
func (c *chooser) helpedSeconds(ctx context.Context, t *calibrate.Tracer, plan decoder.Plan, first, prompt int) (float64, error) {
	one, err := plan.Place(parallel.ShareExperts, []float64{1})
	if err != nil {
		return 0, err
	}
	halves := parallel.InStages(halved(first, plan.Layers).Layers, []parallel.Placement{one, one})
	e, err := t.Expect(ctx, halves, c.costs, calibrate.Work{Rows: prompt})
	if err == nil && len(e.Unknown) > 0 {
		err = fmt.Errorf("the cost of %v was not measured", e.Unknown)
	}
	if err != nil {
		return 0, err
	}
	state := float64(plan.PerSequence()) / float64(plan.Context) * float64(plan.Layers-first) / float64(plan.Layers)
	sum, link := e.Seconds, c.costs.Links[cost.Message]
	for at := 0; at < prompt; {
		n := min(prompt-at, c.o.MaxTokens)
		pieces := decoder.Pieces(n, 2, at+n == prompt)
		sum += link.Seconds(state*float64(pieces[len(pieces)-1].Len()), 0)
		at += n
	}
	return sum, nil
}

// expectHelped is what a step of a placement with a helper takes.
func (c *chooser) expectHelped(ctx context.Context, t *calibrate.Tracer, p parallel.Placement, w calibrate.Work) (cost.Estimate, error) {
	if help := p[1].Help; help.Rows > 0 && w.Rows >= help.Rows {
		w.Until = 0
		return t.Expect(ctx, Halves(p), c.costs, w)
	}
	return t.Expect(ctx, p[:1], calibrate.Costs{Models: c.costs.Models[:1], Links: c.costs.Links}, w)
}

// Halves are rank 0 and its helper as two stages.
func Halves(p parallel.Placement) parallel.Placement {
	layers := p[1].Layers
	return parallel.InStages(halved(layers.Start, layers.End).Layers, []parallel.Placement{p[:1], p[:1]})
}

// keptHelper is the decision of an epoch that re-forms.
func (c *chooser) keptHelper(p Planned, choice replica.Choice) decision {
	line := fmt.Sprintf("--share helper keeps layers %d to %d of steps of %d tokens or more, chosen when the ranks were measured", choice.First, p.Model.Layers-1, choice.Rows)
	if choice.Rows == 0 {
		line = "--share helper keeps all steps on rank 0, as chosen when the ranks were measured"
	}
	return decision{Choice: choice, line: line, text: line + "\n"}
}

// decideHelper is decide for a plan with a helper.
func (c *chooser) decideHelper(ctx context.Context, p Planned) decision {
	h, err := c.chooseHelper(ctx, p)
	if err != nil {
		help := p.Settings.Placement[1]
		d := decision{Choice: replica.Choice{Rows: help.Help.Rows, First: help.Layers.Start, Missing: int(help.Help.Missing)}, unknown: err}
		d.line = fmt.Sprintf("--share helper: layers %d to %d of steps of %d tokens or more, not measured: %v", help.Layers.Start, help.Layers.End-1, help.Help.Rows, err)
		d.text = d.line + "\n"
		return d
	}
	d := decision{Choice: replica.Choice{Rows: h.rows, First: h.first, Missing: int(h.missing)}}
	prompt := min(HelpPrompt, c.o.Context-1)
	if h.rows == 0 {
		d.line = fmt.Sprintf("--share helper: no step goes through the helper, because rank 0 alone takes %.2f s for a prompt of %d tokens, and both would take %.2f s", h.alone, prompt, h.with)
	} else {
		d.line = fmt.Sprintf("--share helper: layers %d to %d of steps of %d tokens or more; %.0f t/s of prefill expected, %s of rank 0 alone", h.first, p.Model.Layers-1, h.rows, float64(prompt)/h.with, ratio(h.with, h.alone))
	}
	d.text = d.line + "\n"
	return d
}
