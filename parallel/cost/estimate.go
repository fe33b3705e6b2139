package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"ringmaster/parallel/assign"
)

// Estimate is the expected time of a step.
type Estimate struct {
	Seconds float64   // until rank 0 knows that all ranks have ended
	Compute []float64 // [ranks] seconds of ops, and of waits of a CPU and a GPU for each other
	Waiting []float64 // [ranks] seconds in waits for exchanges
	// Imbalance is what the busiest rank of a layer reads of the routed experts over the mean
	// of all ranks, 1 without any.
	Imbalance float64
	// Error is the relative error to expect of Seconds. It combines the errors of the
	// lines, weighted by their part of the time, and the greatest Spread of the
	// ranks.
	Error float64
	// Unknown lists the kinds of ops and exchanges without a line. They count as
	// zero, so Error is at least 1.
	Unknown []string
}

// draws is how many choices of experts an estimate averages over.
const draws = 16

// Expect estimates a step with the given traces [ranks] on ranks with the given
// models [ranks] and links. The other ranks begin later than rank 0 by one exchange
// without data, because a message with the step must reach them first. Traces with
// different exchanges from rank 0's are an error.
func Expect(traces []Trace, models []Model, links Links) (Estimate, error) {
	return expect(traces, models, links, true)
}

// expect is Expect; without announced the ranks begin together, and no rank tells rank 0 that
// they have ended.
func expect(traces []Trace, models []Model, links Links, announced bool) (Estimate, error) {
	if len(traces) == 0 || len(traces) != len(models) {
		return Estimate{}, fmt.Errorf("%d traces and %d models; expected one of each for every rank", len(traces), len(models))
	}
	if err := alike(traces); err != nil {
		return Estimate{}, err
	}
	s := &simulation{models: models, links: links, ranks: len(traces), announced: announced,
		sum: Estimate{Compute: make([]float64, len(traces)), Waiting: make([]float64, len(traces))},
		by:  map[string]part{}, unknown: map[string]bool{}}
	n := 1
	if chooses(traces) || slices.ContainsFunc(models, func(m Model) bool { return m.Short.Jitter+m.Long.Jitter > 0 }) {
		n = draws
	}
	for draw := range n {
		s.random, s.noises = rand.New(rand.NewPCG(1, uint64(draw))), rand.New(rand.NewPCG(2, uint64(draw)))
		s.run(traces)
	}
	return s.estimate(n), nil
}

// chooses reports whether experts are chosen in a step.
func chooses(traces []Trace) bool {
	return slices.ContainsFunc(traces[0], func(e Event) bool { return e.Op != nil && e.Op.Chosen != nil })
}

// alike checks that all ranks have the same exchanges.
func alike(traces []Trace) error {
	of := func(t Trace) (out []Exchange) {
		for _, e := range t {
			if e.Start != nil {
				out = append(out, *e.Start)
			}
		}
		return out
	}
	first := of(traces[0])
	for r, t := range traces {
		if !slices.Equal(first, of(t)) {
			return fmt.Errorf("the trace of rank %d has different exchanges from that of rank 0", r)
		}
	}
	return nil
}

// simulation runs the ranks of a group against each other.
type simulation struct {
	models []Model
	links  Links
	ranks  int
	// announced: a message begins the step on the other ranks, and one of each ends it.
	announced bool
	random    *rand.Rand      // of the choices of experts
	noises    *rand.Rand      // of the ops
	choices   [][]int32       // of the layers so far, see choice
	counts    [][]int         // [layers so far][experts] how often choices has each
	reads     [][]float64     // [layers so far][ranks] bytes of routed experts
	loads     [][]assign.Load // [layers so far][ranks] with a Chosen.Rule; see part

	sum     Estimate        // over the draws
	by      map[string]part // by kind and line, on rank 0
	unknown map[string]bool
	// Sums over the layers of the draws: bytes of routed experts of the busiest rank, and
	// the mean of all ranks.
	busiest, mean float64
}

// part is the time of a step that one line explains, in seconds, and its relative
// error.
type part struct{ seconds, trust float64 }

// count adds the seconds of a line under a name.
func (s *simulation) count(name string, l Line, seconds float64) {
	s.by[name] = part{s.by[name].seconds + seconds, l.trust()}
}

// rankState is the position of one rank in its trace.
type rankState struct {
	trace Trace
	at    int     // next event
	now   float64 // seconds since the step began on rank 0, when its ops so far have ended but for those of cpu
	cpu   float64 // likewise of the CPU beside a GPU, 0 without one
	layer int     // Routes so far
}

// run adds one run of the step to the sum.
func (s *simulation) run(traces []Trace) {
	s.choices, s.counts, s.reads, s.loads = s.choices[:0], s.counts[:0], s.reads[:0], s.loads[:0]
	ranks := make([]rankState, s.ranks)
	for r := range ranks {
		ranks[r] = rankState{trace: traces[r], layer: -1}
		if r > 0 && s.announced {
			ranks[r].now = s.link(Exchange{Kind: Message, Root: -1}, false)
		}
	}
	for {
		var pending *Exchange
		begun := make([]float64, s.ranks)
		for r := range ranks {
			pending = s.compute(r, &ranks[r])
			begun[r] = ranks[r].seen(s.models[r].Wait)
		}
		if pending == nil {
			break
		}
		for r := range ranks {
			s.compute(r, &ranks[r]) // the ops that overlap with the exchange
		}
		took := s.link(*pending, true)
		all := slices.Max(begun) + took
		for r := range ranks {
			end := all
			if pending.Root >= 0 && r != pending.Root {
				end = begun[r]
			}
			if wait := end - ranks[r].busy(); wait > 0 {
				s.sum.Waiting[r] += wait
				ranks[r].now = end
			}
			ranks[r].cpu = math.Max(ranks[r].cpu, end)
		}
	}
	// Rank 0 receives a message from every rank that ends.
	end := ranks[0].seen(s.models[0].Wait)
	for r := 1; r < s.ranks; r++ {
		told := ranks[r].seen(s.models[r].Wait)
		if s.announced {
			told += s.link(Exchange{Kind: Message, Root: -1}, false)
		}
		end = math.Max(end, told)
	}
	s.sum.Seconds += end
	for _, layer := range s.reads {
		s.busiest += slices.Max(layer)
		for _, n := range layer {
			s.mean += n / float64(s.ranks)
		}
	}
}

// compute runs the ops of a rank up to the next exchange, or the wait for it, and
// moves behind that. It returns the exchange, nil for a wait and the end.
func (s *simulation) compute(r int, rank *rankState) *Exchange {
	for rank.at < len(rank.trace) {
		e := rank.trace[rank.at]
		rank.at++
		if e.Op == nil && !e.Reach {
			return e.Start
		}
		before := rank.busy()
		if e.Reach {
			rank.cpu = rank.seen(s.models[r].Wait)
		} else {
			if e.Op.Kind == Route {
				rank.layer++
			}
			rank.ran(s.op(r, e.Op, rank.layer), e.Op.OnCPU)
		}
		s.sum.Compute[r] += rank.busy() - before
	}
	return nil
}

// op returns the seconds of an op on a rank.
func (s *simulation) op(r int, o *Op, layer int) float64 {
	bytes, work := o.Bytes, o.Work
	if o.Chosen != nil {
		layer = max(layer, 0)
		experts, slots := s.part(o.Chosen, r, layer)
		if slots == 0 {
			return 0
		}
		bytes, work = o.Chosen.Bytes*float64(experts), o.Chosen.Work*float64(slots)
		s.reads[layer][r] += bytes
	}
	l, ok := s.models[r].lineOf(o)
	if !ok {
		s.unknown[o.Kind] = true
		return 0
	}
	m := s.models[r]
	took := math.Max(l.Seconds(bytes, work)+m.Between, 0)
	noise := m.noise(took)
	took *= 1 + noise.Excess + noise.Jitter*s.noise()
	switch many := l.at(bytes, work); {
	case r > 0:
	case many != nil:
		s.count(o.Kind+" of many rows", *many, took)
	default:
		s.count(o.Kind, l, took)
	}
	return took
}

// part returns how many of the chosen experts of a layer rank r computes, and for how many
// slots (choices of tokens). Whatever divides the chosen experts among ranks is here.
func (s *simulation) part(c *Chosen, r, layer int) (experts, slots int) {
	if c.Rule != nil {
		load := s.assigned(c, layer)[r]
		return load.Experts, load.Slots
	}
	s.choice(c, layer)
	for _, n := range s.counts[layer][c.Start:c.End] {
		if n > 0 {
			experts++
		}
		slots += n
	}
	return experts, slots
}

// assigned is what each rank computes in a layer, by the rule that all ranks have. With many
// rows layers differ little, so only a few of them are assigned, because that costs more than
// drawing them.
func (s *simulation) assigned(c *Chosen, layer int) []assign.Load {
	const manyRows, fewLayers = 64, 4
	like := layer
	if c.Rows >= manyRows {
		like %= fewLayers
	}
	for len(s.loads) <= like {
		s.loads = append(s.loads, nil)
	}
	if s.loads[like] == nil {
		ids := s.choice(c, layer)
		s.loads[like] = slices.Clone(c.Rule.Assign(make([]uint8, len(ids)), like, ids, c.Used))
	}
	s.choice(c, layer) // so that every layer has its reads
	return s.loads[like]
}

// choice draws the experts of the rows of a layer, [Rows][Used], the same for all ranks.
func (s *simulation) choice(c *Chosen, layer int) []int32 {
	for len(s.choices) <= layer {
		ids, order, counts := make([]int32, 0, c.Rows*c.Used), make([]int32, c.Of), make([]int, c.Of)
		for i := range order {
			order[i] = int32(i)
		}
		for range c.Rows {
			for i := range c.Used { // the beginning of a shuffle
				j := i + s.random.IntN(c.Of-i)
				order[i], order[j] = order[j], order[i]
				counts[order[i]]++
			}
			ids = append(ids, order[:c.Used]...)
		}
		s.choices, s.counts, s.reads = append(s.choices, ids), append(s.counts, counts), append(s.reads, make([]float64, s.ranks))
	}
	return s.choices[layer]
}

// noise draws the deviation of one run of an op, in standard deviations: uniform, so that no
// op takes a negative time.
func (s *simulation) noise() float64 { return math.Sqrt(3) * (2*s.noises.Float64() - 1) }

// Message is the kind of a message from one rank to another, as an exchange.
const Message = "message"

// link returns the seconds of an exchange.
func (s *simulation) link(x Exchange, counts bool) float64 {
	l, ok := s.links[x.Kind]
	if !ok {
		if s.ranks > 1 {
			s.unknown[x.Kind] = true
		}
		return 0
	}
	took := l.Seconds(float64(x.Bytes), 0)
	if other, ok := s.links[x.Kind+InTwoPhases]; ok {
		took = math.Min(took, other.Seconds(float64(x.Bytes), 0))
	}
	if counts {
		s.count(x.Kind, l, took)
	}
	return took
}

// estimate returns the mean of n runs.
func (s *simulation) estimate(n int) Estimate {
	e := s.sum
	e.Seconds /= float64(n)
	if e.Imbalance = 1; s.mean > 0 {
		e.Imbalance = s.busiest / s.mean
	}
	for r := range e.Compute {
		e.Compute[r] /= float64(n)
		e.Waiting[r] /= float64(n)
	}
	variance := 0.0
	for _, p := range s.by {
		off := p.trust * p.seconds / float64(n)
		variance += off * off
	}
	spread := 0.0
	for _, m := range s.models {
		spread = math.Max(spread, m.Spread)
	}
	if e.Seconds > 0 {
		e.Error = math.Hypot(math.Sqrt(variance)/e.Seconds, spread)
	}
	for kind := range s.unknown {
		e.Unknown = append(e.Unknown, kind)
	}
	if slices.Sort(e.Unknown); len(e.Unknown) > 0 {
		e.Error = math.Max(e.Error, 1)
	}
	return e
}
