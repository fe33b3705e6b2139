package groupplan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringmaster/distributed/cluster"
	"ringmaster/internal/units"
	"ringmaster/internal/usage"
	"ringmaster/model/arch"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// Stages is how the layers of a model are divided among ranks: into so many stages, each of
// consecutive layers on consecutive ranks. The zero value means no stages.
type Stages struct {
	Count  int
	Layers []parallel.Range // [Count] nil: so that all stages read about as much for a token
	Ranks  []int            // [Count] how many ranks each has; nil: the same number, the first ones more
}

// Given reports whether there are stages.
func (s Stages) Given() bool { return s.Count > 0 }

// ParseStages reads the number of stages, or the layers of each and perhaps how many ranks it
// has: 2, 0-21,22-42 or 0-21:2,22-42:1.
func ParseStages(text string) (Stages, error) {
	if text == "" {
		return Stages{}, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		if n < 2 || n > MaxRanks {
			return Stages{}, fmt.Errorf("%d stages; expected 2 to %d", n, MaxRanks)
		}
		return Stages{Count: n}, nil
	}
	var s Stages
	for part := range strings.SplitSeq(text, ",") {
		layers, ranks, counted := strings.Cut(part, ":")
		first, last, ok := strings.Cut(layers, "-")
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if !ok || err != nil || errTo != nil || from < 0 || to < from {
			return Stages{}, fmt.Errorf("%q is not a range of layers such as 0-21", layers)
		}
		if at := s.end(); from != at {
			return Stages{}, fmt.Errorf("a stage begins with layer %d; expected layer %d, behind the stage before", from, at)
		}
		s.Layers = append(s.Layers, parallel.Range{Start: from, End: to + 1})
		n := 0
		if counted {
			if n, err = strconv.Atoi(ranks); err != nil || n < 1 || n > MaxRanks {
				return Stages{}, fmt.Errorf("%q is not a number of ranks, 1 to %d", ranks, MaxRanks)
			}
		}
		s.Ranks = append(s.Ranks, n)
	}
	if s.Count = len(s.Layers); s.Count < 2 || s.Count > MaxRanks {
		return Stages{}, fmt.Errorf("%d stages; expected 2 to %d", s.Count, MaxRanks)
	}
	switch given := slices.IndexFunc(s.Ranks, func(n int) bool { return n > 0 }); {
	case given < 0:
		s.Ranks = nil
	case slices.Contains(s.Ranks, 0):
		return Stages{}, errors.New("either all stages or none say how many ranks they have")
	}
	return s, nil
}

// end is the first layer behind the last stage.
func (s Stages) end() int {
	if len(s.Layers) == 0 {
		return 0
	}
	return s.Layers[len(s.Layers)-1].End
}

// String is what ParseStages reads.
func (s Stages) String() string {
	if s.Layers == nil {
		if s.Count == 0 {
			return ""
		}
		return strconv.Itoa(s.Count)
	}
	texts := make([]string, s.Count)
	for i, l := range s.Layers {
		texts[i] = fmt.Sprintf("%d-%d", l.Start, l.End-1)
		if s.Ranks != nil {
			texts[i] += ":" + strconv.Itoa(s.Ranks[i])
		}
	}
	return strings.Join(texts, ",")
}

// Check refuses stages that a world of so many ranks does not have, or with such a share.
func (s Stages) Check(ranks int, share Share) error {
	if s.Given() && share.Helper {
		return errors.New("--stages and --share helper are two ways to divide the layers; use one of them")
	}
	if s.Given() && share.Shares.Memory {
		return errors.New("--share memory: with --stages give the shares as numbers, or the layers of each stage")
	}
	if s.Count > ranks {
		return fmt.Errorf("--stages %v: %d stages need as many ranks; there are %d", s, s.Count, ranks)
	}
	sum := 0
	for _, n := range s.Ranks {
		sum += n
	}
	if s.Ranks != nil && sum != ranks {
		return fmt.Errorf("--stages %v has stages of %d ranks together; there are %d", s, sum, ranks)
	}
	return nil
}

// of is the stages for so many members: as given if they are all, else, after a loss, no more
// stages than members, and other layers in each.
func (s Stages) of(members, world int) Stages {
	if members != world {
		s = Stages{Count: min(s.Count, members)}
	}
	if s.Ranks == nil {
		s.Ranks = make([]int, s.Count)
		for i := range s.Ranks {
			s.Ranks[i] = members*(i+1)/s.Count - members*i/s.Count
		}
		slices.SortStableFunc(s.Ranks, func(a, b int) int { return b - a })
	}
	return s
}

// staged is a plan of each stage for a context.
type staged struct {
	stages Stages
	plans  []decoder.Plan // [Count]
	placed parallel.Placement
	ranks  []decoder.RankPlan // [members]
}

// inStages is Plan for stages.
func (o Options) inStages(members []cluster.Hello) (Planned, error) {
	o, left := o.spare()
	if o.DraftFile != nil {
		return Planned{}, errors.New("--stages: the block for multi-token prediction needs the last layer on rank 0; use --drafts text or off")
	}
	numbers := make([]int, len(members))
	for i, m := range members {
		numbers[i] = m.Rank
	}
	shares, err := o.Share.Shares.weights(numbers, make([]int64, len(members)))
	if err != nil {
		return Planned{}, err
	}
	stages := o.Stages.of(len(members), members[0].Size)
	if err := o.chooseLayers(&stages, shares); err != nil {
		return Planned{}, err
	}
	whole, err := o.fitContext(func(p decoder.Plan) bool {
		s, err := o.planStages(stages, members, shares, p.Context)
		return err != nil || o.refuse(members, s.ranks, 0, 0) == nil // an error stands for any context
	})
	if err != nil {
		return Planned{}, err
	}
	last, err := o.planStages(stages, members, shares, whole.Context)
	if err != nil {
		return Planned{}, err
	}
	if err := o.refuse(members, last.ranks, 0, 0); err != nil {
		return Planned{}, err
	}
	budget, err := o.stagesBudget(last, members, shares, whole)
	if err != nil {
		return Planned{}, err
	}
	text := o.saysStages(last, members, whole, budget)
	if left {
		text += noBlock("in stages the last layer is not on rank 0")
	}
	return Planned{
		Settings: replica.Settings{Context: whole.Context, MaxTokens: o.MaxTokens, Reduce: o.Reduce, Placement: last.placed, SequenceBudget: budget},
		Share:    o.Share.Of, Model: whole, Ranks: last.ranks, Heap: own(whole, 0, o.Heap).heap, AtMost: last.ranks[0].Buffers + budget,
		Text: text,
	}, nil
}

// PlanOrStages is Plan, but with --share auto a model that has no room otherwise gets a stage
// for each member: stages also divide the KV caches, and dense weights as evenly as layers
// allow. A block that may be spared goes first.
func (o Options) PlanOrStages(members []cluster.Hello, held int64) (Planned, error) {
	gpus := !slices.ContainsFunc(members, func(m cluster.Hello) bool { return m.Threads > 0 })
	p, long, err := settleSteps(o, gpus, func(o Options) (Planned, error) { return o.planOrStages(members, held) }, Planned.holds)
	if long {
		p.Text += saysLong()
	}
	return p, err
}

// holds is what the memory of all ranks holds.
func (p Planned) holds() held {
	s := p.Settings
	return holding(s.Context, s.SequenceBudget, p.Ranks[0].Sequence, s.Block, s.Placement.Staged())
}

// planOrStages is PlanOrStages for steps of the options.
func (o Options) planOrStages(members []cluster.Hello, held int64) (Planned, error) {
	p, err := o.Plan(members, held)
	spared, may := o.spare()
	if may && (err != nil || p.Settings.Block && p.Settings.Context < p.Model.ContextLimit) {
		without, failed := spared.Plan(members, held)
		if failed == nil && (err != nil || without.Settings.Context > p.Settings.Context) {
			without.Text += noBlock(noRoom)
			p, err = without, nil
		}
	}
	if err == nil || !o.Share.Auto || o.Stages.Given() || len(members) == 1 || spared.DraftFile != nil || o.Share.Shares.Memory {
		return p, err
	}
	o.Stages, o.Share.Auto = Stages{Count: len(members)}, false
	staged, failed := o.inStages(members)
	if failed != nil {
		return p, err
	}
	staged.Text += fmt.Sprintf("--share auto chose stages, without measuring: with experts alone %v\n", err)
	return staged, nil
}

// planStages plans every stage and rank for a context; shares are those of the members.
func (o Options) planStages(stages Stages, members []cluster.Hello, shares []float64, context int) (staged, error) {
	s := staged{stages: stages}
	var parts []parallel.Placement
	open, at := o.open(), 0
	open.Context = context
	for i, layers := range stages.Layers {
		open.Span = layers
		plan, err := arch.Plan(o.Model, open, o.Sequences)
		if err != nil {
			return s, err
		}
		p, err := plan.Place(o.Share.Of, shares[at:at+stages.Ranks[i]])
		if err != nil {
			return s, fmt.Errorf("stage %d: %w", i, err)
		}
		if o.Share.Of == parallel.ShareAll && len(p) > 1 {
			p = p.DivideRows(unmeasuredRows)
		}
		s.plans, parts, at = append(s.plans, plan), append(parts, p), at+len(p)
	}
	s.placed = parallel.InStages(stages.Layers, parts)
	for i, stage := range s.placed.Stages() {
		inside := s.placed.Within(stage)
		for r := range inside {
			m := members[stage.Ranks.Start+r]
			rank := s.plans[i].ForRank(r, inside)
			rank.Rank, rank.Part.Layers = m.Rank, stage.Layers
			rank.Buffers = o.rest(s.plans[i], m, rank.Buffers+decoder.StageBytes(o.MaxTokens, s.stages.Count, s.plans[i].CarriedRow))
			s.ranks = append(s.ranks, rank)
		}
	}
	return s, nil
}

// chooseLayers chooses the layers of stages that lack them, and checks those that were given.
func (o Options) chooseLayers(s *Stages, shares []float64) error {
	plan, err := arch.Plan(o.Model, o.open(), 1)
	if err != nil {
		return err
	}
	if s.Layers == nil {
		s.Layers, err = o.evenStages(*s, shares, plan)
		return err
	}
	if s.end() != plan.Layers {
		return usage.Errorf("--stages %v ends with layer %d; the model has the layers 0 to %d", o.Stages, s.end()-1, plan.Layers-1)
	}
	for i, l := range s.Layers[1:] {
		if !plan.Splits[l.Start] {
			return usage.Errorf("--stages %v: stage %d begins with layer %d, which reads what an earlier layer has made of the same tokens; a stage may begin with %s",
				o.Stages, i+1, l.Start, starts(plan.Splits))
		}
	}
	return nil
}

// starts lists the layers with which a stage may begin.
func starts(splits []bool) string {
	var at []string
	for layer := 1; layer < len(splits); layer++ {
		if splits[layer] {
			at = append(at, strconv.Itoa(layer))
		}
	}
	if len(at) == 0 {
		return "none"
	}
	return strings.Join(at, ", ")
}

// evenStages chooses the layers so that the stage which reads most for a token, over its
// ranks' shares, reads least.
func (o Options) evenStages(s Stages, shares []float64, whole decoder.Plan) ([]parallel.Range, error) {
	reads := make([]float64, whole.Layers+1) // of the layers before
	for layer, bytes := range whole.TokenReads(o.Model) {
		reads[layer+1] = reads[layer] + float64(bytes)
	}
	weights, at := make([]float64, s.Count), 0
	for i, n := range s.Ranks {
		for _, share := range shares[at : at+n] {
			weights[i] += share
		}
		at += n
	}
	// least[i][end] is the most that one of the first i+1 stages reads if they end there.
	type choice struct {
		most float64
		from int
	}
	least := make([][]choice, s.Count)
	for i := range least {
		least[i] = make([]choice, whole.Layers+1)
		for end := range least[i] {
			best := choice{from: -1}
			for from := range end {
				if i == 0 && from > 0 || i > 0 && (!whole.Splits[from] || least[i-1][from].from < 0) {
					continue
				}
				most := (reads[end] - reads[from]) / weights[i]
				if i > 0 {
					most = max(most, least[i-1][from].most)
				}
				if best.from < 0 || most < best.most {
					best = choice{most, from}
				}
			}
			least[i][end] = best
		}
	}
	layers := make([]parallel.Range, s.Count)
	for i, end := s.Count-1, whole.Layers; i >= 0; i-- {
		from := least[i][end].from
		if from < 0 {
			return nil, usage.Errorf("--stages %v: the model has no such stages; beside layer 0, a stage may begin with %s", o.Stages, starts(whole.Splits))
		}
		layers[i] = parallel.Range{Start: from, End: end}
		end = from
	}
	return layers, nil
}

// stagesBudget is what rank 0 may use for the KV caches of its layers so that all ranks have
// room for theirs of the same sequences.
func (o Options) stagesBudget(s staged, members []cluster.Hello, shares []float64, whole decoder.Plan) (int64, error) {
	short, err := o.planStages(s.stages, members, shares, min(LeastContext, whole.Context))
	if err != nil {
		return 0, err
	}
	budget := sequenceBudget(0, 0, s.plans[0])
	for r, m := range members {
		// Layers of different kinds grow differently: the greatest ratio of this rank's
		// bytes to those of rank 0 counts.
		ratio := 1.0
		for _, p := range []staged{s, short} {
			ratio = max(ratio, float64(p.ranks[r].Sequence)/float64(p.ranks[0].Sequence))
		}
		room := int64(-1)
		if m.OwnMemory > 0 {
			room = m.OwnMemory - s.ranks[r].Buffers
		}
		if free := m.Memory - (s.ranks[r].Resident() - s.ranks[r].Sequence); m.Memory > 0 && !o.Overcommit && (room < 0 || free < room) {
			room = free
		}
		if room >= 0 {
			budget = min(budget, int64(float64(room)/ratio))
		}
	}
	return budget, nil
}

// saysStages is the plan for people.
func (o Options) saysStages(s staged, members []cluster.Hello, whole decoder.Plan, budget int64) string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s: %s; context of %d tokens; %d stages\n", whole.Name, whole.Summary, whole.Context, s.stages.Count)
	names := make([]string, len(members))
	for r, m := range members {
		names[r] = strings.TrimSpace(m.Host + " " + m.Data)
	}
	for i, stage := range s.placed.Stages() {
		divided := ""
		if n := stage.Ranks.Len(); n > 1 {
			divided = fmt.Sprintf(", --share %v inside", o.Share.Of)
		}
		fmt.Fprintf(&w, "stage %d: layers %d to %d on %s%s\n", i, stage.Layers.Start, stage.Layers.End-1, rankList(members[stage.Ranks.Start:stage.Ranks.End]), divided)
	}
	_ = decoder.WriteRanks(&w, s.ranks, names...) // a string takes all
	fmt.Fprintf(&w, "KV caches of all sequences: at most %s on rank %d, of its layers\n", units.Bytes(budget), members[0].Rank)
	return w.String()
}

// rankList names ranks.
func rankList(members []cluster.Hello) string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name()
	}
	return strings.Join(names, ", ")
}
