package groupplan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// unmeasuredRows is from how many rows on a step is divided where costs are not known.
const unmeasuredRows = 64

// Planned is a plan of a group.
type Planned struct {
	// Settings are what the ranks are told. With Share.Auto they have an alternative if
	// there is room for both; whoever measures the group chooses.
	Settings replica.Settings
	Share    parallel.Share // that of Settings.Placement
	// others are the plans of Settings.Alternatives.
	others []Planned
	// without are what Ranks and Text are if copies turn out never to serve, empty if they do.
	without withoutCopies
	// helper is the plan with another first layer of the helper, nil without one; the helper has
	// room for the layers from least on.
	helper func(first int) (Planned, error)
	least  int
	Model  decoder.Plan
	Ranks  []decoder.RankPlan // [members], with all that a rank uses in Buffers
	Heap   int64              // bytes of the Go heap on rank 0
	AtMost int64              // bytes that rank 0 uses beside the mapped weights
	Text   string             // the plan for people; it may be there with an error, too
}

// withoutCopies is what differs in a plan without its copies.
type withoutCopies struct {
	ranks         []decoder.RankPlan
	copied, plain string // the part of the text that shows the ranks, with copies and without
}

// placements are those that a plan leaves open.
func (p Planned) placements() []parallel.Placement {
	return append([]parallel.Placement{p.Settings.Placement}, p.Settings.Alternatives...)
}

// choose is the plan once its placement has been chosen. What both choices need stays
// reserved, because the ranks have loaded the model for it.
func (p Planned) choose(c replica.Choice) Planned {
	if p.helper != nil {
		if at, err := p.helper(c.First); err == nil { // it has room for fewer layers if it has for more
			p = at
		}
		p.Settings.Placement = c.Of(p.placements())
		return p
	}
	out := p
	if c.Placement > 0 {
		other := p.others[c.Placement-1]
		out.Share, out.Ranks, out.Text, out.without = other.Share, other.Ranks, other.Text, other.without
		if other.Settings.Placement.Staged() { // rank 0's budget is for its layers
			out.Settings.SequenceBudget = other.Settings.SequenceBudget
		}
	}
	out.Settings.Placement = c.Of(p.placements())
	if w := out.without; w.ranks != nil && !out.Settings.Placement.Copies() {
		out.Ranks, out.Text = w.ranks, strings.Replace(out.Text, w.copied, w.plain, 1)
	}
	out.without = withoutCopies{}
	out.Settings.Alternatives, out.Settings.Measure, out.others = nil, false, nil
	return out
}

// Fallback is the plan if nothing is known by which its placement could be chosen.
func (p Planned) Fallback() Planned {
	if p.helper != nil {
		return p
	}
	return p.choose(unmeasured(p.placements()))
}

// Plan decides what every rank does, and a context that fits the memory of all ranks, for steps of
// the options (0 is decoder.DefaultMaxTokens). held is the bytes of the sequences that outlive the
// last epoch.
func (o Options) Plan(members []cluster.Hello, held int64) (Planned, error) {
	o.MaxTokens = cmp.Or(o.MaxTokens, decoder.DefaultMaxTokens)
	if o.Stages.Given() && len(members) > 1 {
		return o.inStages(members)
	}
	if o.Share.Helper {
		return o.withHelper(members, held)
	}
	if !o.Share.Auto || len(members) == 1 {
		return o.divide(o.Share.Of, members, held)
	}
	experts, err := o.divide(parallel.ShareExperts, members, held)
	all, errAll := o.divide(parallel.ShareAll, members, held)
	if err == nil && errAll == nil && experts.Settings.Context != all.Settings.Context {
		// The ranks load the model before they measure, for one context.
		both := o
		both.Context = min(experts.Settings.Context, all.Settings.Context)
		text := fmt.Sprintf("--share auto: context of %d tokens, which both have room for (experts %d, all %d)\n",
			both.Context, experts.Settings.Context, all.Settings.Context)
		experts, err = both.divide(parallel.ShareExperts, members, held)
		all, errAll = both.divide(parallel.ShareAll, members, held)
		experts.Text, all.Text = experts.Text+text, all.Text+text
	}
	switch {
	case err != nil && errAll != nil:
		experts.Text = ""
		return experts, err
	case err != nil:
		all.Text += fmt.Sprintf("--share auto chose all, without measuring: with experts alone %v\n", err)
		return all, nil
	case errAll != nil:
		experts = experts.choose(replica.Choice{})
		experts.Text += fmt.Sprintf("--share auto chose experts, without measuring: with all %v\n", errAll)
		return experts, nil
	}
	experts.others = []Planned{all}
	if staged, err := o.forSpeed(members, experts.Settings.Context); err == nil { // else two are to choose from
		experts.others = append(experts.others, staged)
	}
	s := &experts.Settings
	s.SequenceBudget = min(s.SequenceBudget, all.Settings.SequenceBudget)
	for _, other := range experts.others {
		s.Alternatives = append(s.Alternatives, other.Settings.Placement)
		experts.Heap, experts.AtMost = max(experts.Heap, other.Heap), max(experts.AtMost, other.AtMost)
	}
	return experts, nil
}

// divide is Plan with a choice of what is divided.
func (o Options) divide(share parallel.Share, members []cluster.Hello, held int64) (p Planned, err error) {
	var w strings.Builder
	defer func() { p.Text = w.String() }()
	// The buffers of a rank and the KV cache of a sequence do not depend on
	// the shares, so the rank that offers least decides the context.
	small := smallestOffer(members)
	even := slices.Repeat([]float64{1}, len(members))
	rest := func(p decoder.Plan, m cluster.Hello) int64 {
		placement, err := p.Place(share, even)
		placement = placement.DivideRows(unmeasuredRows)
		if err != nil { // no experts: not a model that has been planned
			return math.MaxInt64 / 4
		}
		return o.rest(p, m, p.ForRank(0, placement).Buffers)
	}
	need := func(p decoder.Plan) int64 { return rest(p, members[max(small, 0)]) + p.PerSequence() }
	fits := func(p decoder.Plan) bool {
		for _, m := range members {
			if m.OwnMemory > 0 && rest(p, m)+p.PerSequence() > m.OwnMemory {
				return false
			}
		}
		return small < 0 || o.Overcommit || need(p) <= members[small].Memory
	}
	plan, err := o.fitContext(func(p decoder.Plan) bool {
		return fits(p) && (!o.Lone || o.resident(p, share, members, need(p)))
	})
	if err != nil {
		return p, err
	}
	for _, m := range members {
		if own := rest(plan, m) + plan.PerSequence(); m.OwnMemory > 0 && own > m.OwnMemory {
			return p, fmt.Errorf("%s needs %s on %s for buffers and one sequence of %d tokens; its --memory allows %s. Raise it there, or use a smaller --ctx, --max-batch or --max-body",
				o.Model.Path(), units.Bytes(own), m.Name(), plan.Context, units.Bytes(m.OwnMemory))
		}
	}
	if !fits(plan) {
		return p, fmt.Errorf("%s needs %s on every rank for buffers and one sequence of %d tokens; %s offers %s, %s too little. Use a smaller --ctx or --max-batch, or --memory unlimited to start anyway",
			o.Model.Path(), units.Bytes(need(plan)), plan.Context, members[small].Name(), units.Bytes(members[small].Memory), units.Bytes(need(plan)-members[small].Memory))
	}
	placement, err := o.place(plan, share, members, need(plan))
	if err != nil {
		return p, err
	}
	ranks, names := o.ranks(plan, placement, members), make([]string, len(members))
	for r, m := range members {
		names[r] = strings.TrimSpace(m.Host + " " + m.Data)
	}
	copied, bare := o.copy(plan, members, placement, ranks, held)
	fmt.Fprintf(&w, "%s: %s; context of %d tokens; --share %s: %s divided among %d ranks\n",
		plan.Name, plan.Summary, plan.Context, share, share.Divides(), len(members))
	if plan.UnreadOf != "" {
		fmt.Fprintf(&w, "not read: %s of the file, %s\n", units.Bytes(plan.Unread), plan.UnreadOf)
	}
	if plan.Tables > 0 {
		fmt.Fprintf(&w, "tables: %s of the file stay on each rank's disk; a token reads %d rows of them, %s\n",
			units.Bytes(plan.Tables), plan.TableReads, units.Bytes(plan.TableReadBytes))
	}
	table := func(ranks []decoder.RankPlan, copied string) string {
		var t strings.Builder
		_ = decoder.WriteRanks(&t, ranks, names...) // a string takes all
		return t.String() + copied
	}
	copied = table(ranks, copied)
	w.WriteString(copied)
	var without withoutCopies
	if bare != nil {
		without = withoutCopies{bare, copied, table(bare, noCopies(waitsAlways, expectToken(plan, placement.WithoutCopies())))}
	}
	budget := o.budget(plan, members, ranks)
	if err := o.refuse(members, ranks, budget, held); err != nil {
		return p, err
	}
	if held > 0 && o.Reduce == parallel.Sum {
		fmt.Fprintf(&w, "--reduce sum: running answers continue, but may differ from what the previous group would have produced; --reduce exact avoids that\n")
	}
	if placement.DividesRows() && !o.Share.Auto { // which says it when it has chosen
		fmt.Fprintf(&w, "steps of %d tokens or more: what every rank has is divided by rows\n", placement[0].Rows)
	}
	fmt.Fprintf(&w, "KV caches of all sequences: at most %s on each rank\n", units.Bytes(budget))
	return Planned{
		Settings: replica.Settings{Context: plan.Context, MaxTokens: o.MaxTokens, Reduce: o.Reduce, Placement: placement, SequenceBudget: budget, Block: plan.DraftWeights > 0},
		Share:    share, Model: plan, Ranks: ranks, Heap: own(plan, 0, o.Heap).heap, AtMost: ranks[0].Buffers + budget, without: without,
	}, nil
}

// resident reports whether the ranks have room for their parts of a plan, with the weights. It is
// true where a shorter context would not help: the shares cannot be had, or nothing bounds memory.
func (o Options) resident(plan decoder.Plan, share parallel.Share, members []cluster.Hello, need int64) bool {
	placement, err := o.place(plan, share, members, need)
	return err != nil || o.refuse(members, o.ranks(plan, placement, members), 0, 0) == nil
}

// ranks plans the memory of each rank.
func (o Options) ranks(plan decoder.Plan, placement parallel.Placement, members []cluster.Hello) []decoder.RankPlan {
	ranks := make([]decoder.RankPlan, len(members))
	for r, m := range members {
		ranks[r] = plan.ForRank(r, placement)
		ranks[r].Rank = m.Rank
		ranks[r].Buffers = o.rest(plan, m, ranks[r].Buffers)
	}
	return ranks
}

// refuse is why the ranks have no room for their parts, nil if they do.
func (o Options) refuse(members []cluster.Hello, ranks []decoder.RankPlan, budget, held int64) error {
	for r, m := range members {
		if m.Memory > 0 && ranks[r].Resident() > m.Memory && !o.Overcommit {
			return fmt.Errorf("%s needs %s of memory and offers %s, %s too little, so every token would read from disk; give it less with --share %v:NUMBERS, add ranks, or use --memory unlimited to run anyway%s",
				m.Name(), units.Bytes(ranks[r].Resident()), units.Bytes(m.Memory), units.Bytes(ranks[r].Resident()-m.Memory), Share{Of: o.Share.Of, Auto: o.Share.Auto}, onGPU(m))
		}
	}
	if held > 0 && budget > 0 && held > budget {
		return fmt.Errorf("the KV caches of the running requests take %s; these ranks have memory for %s", units.Bytes(held), units.Bytes(budget))
	}
	return nil
}

// place divides the model among the ranks; need is the memory in bytes that a rank
// needs in addition to the weights.
func (o Options) place(plan decoder.Plan, share parallel.Share, members []cluster.Hello, need int64) (parallel.Placement, error) {
	forWeights, numbers := make([]int64, len(members)), make([]int, len(members))
	for i, m := range members {
		if m.Memory == 0 && o.Share.Shares.Memory {
			return nil, fmt.Errorf("--share %v: the memory of %s is unknown; give the shares as numbers", o.Share, m.Name())
		}
		whole := plan.Replicated(share) + need
		forWeights[i], numbers[i] = m.Memory-whole, m.Rank
		if forWeights[i] <= 0 && o.Share.Shares.Memory {
			return nil, fmt.Errorf("--share %v: %s offers %s, but %s is needed in addition to %s, %s more; give the shares as numbers",
				o.Share, m.Name(), units.Bytes(m.Memory), units.Bytes(whole), share.Divides(), units.Bytes(whole-m.Memory))
		}
	}
	weights, err := o.Share.Shares.weights(numbers, forWeights)
	if err != nil {
		return nil, err
	}
	p, err := plan.Place(share, weights)
	if err != nil {
		return nil, err
	}
	if share == parallel.ShareAll || o.Share.Auto {
		p = p.DivideRows(unmeasuredRows)
	}
	return p, nil
}

// reads is Planner.Reads.
func (o Options) reads(s replica.Settings, i int, before *parallel.Part) (int64, error) {
	o.Context = s.Context
	open := o.open()
	open.Span = s.Placement[i].Layers
	plan, err := arch.Plan(o.Model, open, 1)
	if err != nil {
		return 0, err
	}
	if before != nil && before.Layers != open.Span {
		before = nil // it has read other layers
	}
	return plan.Fresh(before, s.Placement[i], s.Placement[len(s.Placement)-1]), nil
}
