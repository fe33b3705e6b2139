package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"ringmaster/distributed/cluster"
	"ringmaster/gguf"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// leastContext ends the search of fitContext: a context this short is not
// halved any further, in tokens.
const leastContext = 4096

// openOptions are the options for opening the model that the flags determine.
func (o *modelOptions) openOptions() (decoder.OpenOptions, error) {
	reduce, err := parallel.ParseReduce(o.reduce)
	if err != nil {
		return decoder.OpenOptions{}, err
	}
	wire := parallel.F16
	if o.cluster.on {
		wire, err = parallel.ParseWire(o.cluster.wire)
	}
	return decoder.OpenOptions{Context: o.ctx, MaxTokens: o.batch, Reduce: reduce, Wire: wire}, err
}

// fitContext plans the memory for the context of --ctx. Without the flag it
// starts at the context of the file and halves it until the plan fits or the
// context is down to leastContext, so the caller must check the result with
// fits. sequences is how many are held at once.
func (o *modelOptions) fitContext(f *gguf.File, sequences int, fits func(decoder.Plan) bool) (decoder.Plan, error) {
	open, err := o.openOptions()
	if err != nil {
		return decoder.Plan{}, err
	}
	plan, err := arch.Plan(f, open, sequences)
	if err != nil {
		return plan, err
	}
	if o.ctx > plan.ContextLimit {
		return plan, usage.Errorf("--ctx is %d; %s allows at most %d", o.ctx, f.Path(), plan.ContextLimit)
	}
	for o.ctx == 0 && !fits(plan) && plan.Context > leastContext {
		open.Context = plan.Context / 2
		if plan, err = arch.Plan(f, open, sequences); err != nil {
			return plan, err
		}
	}
	return plan, nil
}

// planGroup decides what every rank does: which experts it owns, and a context
// that fits the memory of all ranks. It prints the plan to w. sequences is how
// many are held at once, and held the bytes of those that outlive the last epoch. The
// context of the first plan is kept in later epochs, because clients already know it.
func (o *modelOptions) planGroup(f *gguf.File, members []cluster.Hello, w io.Writer, sequences int, held int64) (replica.Settings, error) {
	if o.cluster.share == shareAuto {
		return o.planAuto(f, members, w, sequences, held)
	}
	share, err := parallel.ParseShare(o.cluster.share)
	if err != nil {
		return replica.Settings{}, err
	}
	s, err := o.planShare(share, f, members, w, sequences, held)
	if o.expect && len(members) > 1 {
		s.Measure = !o.costs.join(members)
	}
	return s, err
}

// fitsGroup returns why planGroup would fail, or nil, and has no effect.
func (o *modelOptions) fitsGroup(f *gguf.File, members []cluster.Hello, sequences int, held int64) error {
	context, planned, atMost := o.ctx, o.planned, o.plannedAtMost
	defer func() { o.ctx, o.planned, o.plannedAtMost = context, planned, atMost }()
	shares := []parallel.Share{parallel.ShareExperts, parallel.ShareAll}
	if o.cluster.share != shareAuto {
		share, err := parallel.ParseShare(o.cluster.share)
		if err != nil {
			return err
		}
		shares = []parallel.Share{share}
	}
	var err error
	for _, s := range shares {
		if _, err = o.planShare(s, f, members, io.Discard, sequences, held); err == nil {
			return nil
		}
	}
	return err
}

// planShare is planGroup with a choice of what is divided.
func (o *modelOptions) planShare(share parallel.Share, f *gguf.File, members []cluster.Hello, w io.Writer, sequences int, held int64) (replica.Settings, error) {
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
		return o.rankRest(p, m, p.ForRank(0, placement).Buffers)
	}
	need := func(p decoder.Plan) int64 { return rest(p, members[max(small, 0)]) + p.PerSequence() }
	fits := func(p decoder.Plan) bool {
		for _, m := range members {
			if m.OwnMemory > 0 && rest(p, m)+p.PerSequence() > m.OwnMemory {
				return false
			}
		}
		return small < 0 || o.overcommit || need(p) <= members[small].Memory
	}
	plan, err := o.fitContext(f, sequences, fits)
	if err != nil {
		return replica.Settings{}, err
	}
	for _, m := range members {
		if own := rest(plan, m) + plan.PerSequence(); m.OwnMemory > 0 && own > m.OwnMemory {
			return replica.Settings{}, fmt.Errorf("%s needs %s on rank %d for buffers and one sequence of %d tokens; its --memory allows %s. Raise it there, or use a smaller --ctx, --max-batch or --max-body",
				f.Path(), units.Bytes(own), m.Rank, plan.Context, units.Bytes(m.OwnMemory))
		}
	}
	if !fits(plan) {
		return replica.Settings{}, fmt.Errorf("%s needs %s on every rank for buffers and one sequence of %d tokens; rank %d offers %s. Use a smaller --ctx or --max-batch, or --overcommit to start anyway",
			f.Path(), units.Bytes(need(plan)), plan.Context, members[small].Rank, units.Bytes(members[small].Memory))
	}
	placement, err := o.place(plan, share, members, need(plan))
	if err != nil {
		return replica.Settings{}, err
	}
	ranks := make([]decoder.RankPlan, len(members))
	names := make([]string, len(members))
	for r, m := range members {
		ranks[r], names[r] = plan.ForRank(r, placement), m.Data
		ranks[r].Rank = m.Rank
		ranks[r].Buffers = o.rankRest(plan, m, ranks[r].Buffers)
	}
	fmt.Fprintf(w, "%s: %s; context of %d tokens; --share %s: %s divided among %d ranks\n",
		plan.Name, plan.Summary, plan.Context, share, share.Divides(), len(members))
	if plan.UnreadOf != "" {
		fmt.Fprintf(w, "not read: %s of the file, %s\n", units.Bytes(plan.Unread), plan.UnreadOf)
	}
	if err := decoder.WriteRanks(w, ranks, names...); err != nil {
		return replica.Settings{}, err
	}
	for r, m := range members {
		if m.Memory > 0 && ranks[r].Resident() > m.Memory && !o.overcommit {
			return replica.Settings{}, fmt.Errorf("rank %d needs %s of memory and offers %s, so every token would read from disk; give it a smaller share with --shares, add ranks, or use --overcommit to run anyway%s",
				m.Rank, units.Bytes(ranks[r].Resident()), units.Bytes(m.Memory), onGPU(m))
		}
	}
	budget := o.groupBudget(plan, members, ranks)
	if held > 0 && budget > 0 && held > budget {
		return replica.Settings{}, fmt.Errorf("the KV caches of the requests under way have %s; these ranks have memory for %s", units.Bytes(held), units.Bytes(budget))
	}
	if held > 0 && o.reduce == parallel.Sum.String() {
		fmt.Fprintf(w, "--reduce sum: answers under way go on, but may differ from here on from those of the ranks before; --reduce exact avoids that\n")
	}
	o.ctx = plan.Context
	o.planned, o.plannedAtMost = own(plan, 0, o.heap).heap, ranks[0].Buffers+budget
	if placement.DividesRows() {
		fmt.Fprintf(w, "steps of %d tokens or more: what every rank has is divided by rows\n", placement[0].Rows)
	}
	if from := placement[0].Micro; from > 0 {
		fmt.Fprintf(w, "steps of %d tokens or more: run as two micro-batches\n", from)
	}
	fmt.Fprintf(w, "KV caches of all sequences: at most %s on each rank\n", units.Bytes(budget))
	return replica.Settings{Context: plan.Context, MaxTokens: o.batch, Reduce: o.reduce, Wire: o.cluster.wire, Placement: placement, SequenceBudget: budget}, nil
}

// groupBudget is what the rank with the least memory has for KV caches. All ranks
// hold the same sequences.
func (o *modelOptions) groupBudget(plan decoder.Plan, members []cluster.Hello, ranks []decoder.RankPlan) int64 {
	budget := sequenceBudget(0, 0, plan)
	for r, m := range members {
		if m.OwnMemory > 0 {
			budget = min(budget, sequenceBudget(m.OwnMemory, ranks[r].Buffers, plan))
		}
		if m.Memory > 0 && !o.overcommit {
			budget = min(budget, sequenceBudget(m.Memory, ranks[r].Resident()-ranks[r].Sequence, plan))
		}
	}
	return budget
}

// smallestOffer returns the rank that offers the least memory, -1 if none is known.
func smallestOffer(members []cluster.Hello) int {
	least := -1
	for i, m := range members {
		if m.Memory > 0 && (least < 0 || m.Memory < members[least].Memory) {
			least = i
		}
	}
	return least
}

// place divides the model among the ranks; need is the memory in bytes that a rank
// needs in addition to the weights.
func (o *modelOptions) place(plan decoder.Plan, share parallel.Share, members []cluster.Hello, need int64) (parallel.Placement, error) {
	forWeights := make([]int64, len(members))
	for i, m := range members {
		if m.Memory == 0 && o.cluster.shares == "memory" {
			return nil, fmt.Errorf("--shares memory: the memory of rank %d is unknown; start it with --offer-memory", m.Rank)
		}
		whole := plan.Replicated(share) + need
		forWeights[i] = m.Memory - whole
		if forWeights[i] <= 0 && o.cluster.shares == "memory" {
			return nil, fmt.Errorf("--shares memory: rank %d offers %s, but %s is needed in addition to %s; start it with --offer-memory or set the shares by hand",
				m.Rank, units.Bytes(m.Memory), units.Bytes(whole), share.Divides())
		}
	}
	numbers := make([]int, len(members))
	for i, m := range members {
		numbers[i] = m.Rank
	}
	weights, err := o.cluster.weights(numbers, forWeights)
	if err != nil {
		return nil, err
	}
	p, err := plan.Place(share, weights)
	if err == nil && (share == parallel.ShareAll || o.cluster.share == shareAuto) {
		p = p.DivideRows(unmeasuredRows)
	}
	if err != nil {
		return nil, err
	}
	from, _, err := o.cluster.microBatches()
	return p.MicroBatches(from), err
}
