package parallel

import (
	"fmt"
	"math"
	"slices"

	"ringmaster/distributed"
	"ringmaster/parallel/assign"
)

// Sizes has the numbers of a model's divisible parts.
type Sizes struct {
	Experts    int // routed experts of each layer
	Heads      int // groups of attention heads of each layer
	Shared     int // segments of the shared expert of each layer, or of its dense FFN; 0 without one
	Vocabulary int // rows of the output head
	Layers     int // of the model; only stages divide them
}

// Part is one rank's part of each layer and of the output head.
type Part struct {
	// Layers are those of the rank's stage, see Stage; empty if every rank computes all.
	Layers     Range   `json:"layers,omitzero"`
	Experts    Range   `json:"experts"`
	Heads      Range   `json:"heads"`
	Shared     Range   `json:"shared"`
	Vocabulary Range   `json:"vocabulary"`
	Weight     float64 `json:"weight"` // in a division of rows; only ratios matter
	// Rows is the number of rows from which a step is divided by rows, the same on all
	// ranks; 0 for never. See Placement.Cut.
	Rows int `json:"rows,omitempty"`
	// Copies are experts of other ranks that this rank has too, one set for all layers or
	// one for each layer; see package assign.
	Copies []assign.Set `json:"copies,omitempty"`
	// Speed is the rate at which the rank computes experts, 1 to assign.MaxSpeed; only
	// ratios matter. 0 is 1.
	Speed int `json:"speed,omitempty"`
	// Waits says that the host of the rank would have to wait for a device to know which
	// experts a row chose. If any rank does, copies serve only steps that are divided by
	// rows, because ranks exchange the choice in these.
	Waits bool `json:"waits,omitempty"`
	// Help makes the rank the helper of rank 0, see Help; nil: it is not.
	Help *Help `json:"help,omitempty"`
}

// Placement says which part of a model each rank computes, [ranks] by rank. The leader
// makes it when an epoch forms, and it travels in the settings of the epoch. Experts are
// always divided: the ranges are consecutive and cover all of them. The other parts are
// either divided in the same way or replicated, so that every rank has the whole.
type Placement []Part

// Share says which parts of a model are divided among ranks.
type Share uint8

// The choices of Share.
const (
	// ShareExperts divides the routed experts alone: one exchange a layer.
	ShareExperts Share = iota
	// ShareAll divides everything in Sizes: two exchanges a layer and a gather of
	// the logits.
	ShareAll
)

// ParseShare reads "experts" or "all"; any other name is an error.
func ParseShare(s string) (Share, error) {
	switch s {
	case "experts":
		return ShareExperts, nil
	case "all":
		return ShareAll, nil
	}
	return ShareExperts, fmt.Errorf("share is %q; expected experts or all", s)
}

// String returns the name that ParseShare reads.
func (s Share) String() string {
	if s == ShareAll {
		return "all"
	}
	return "experts"
}

// Divides says for people what is divided.
func (s Share) Divides() string {
	if s == ShareAll {
		return "experts, attention, shared expert and output head"
	}
	return "experts"
}

// Place makes the placement of a Share, by ByExperts or Everything.
func Place(how Share, s Sizes, shares []float64) (Placement, error) {
	if how == ShareAll {
		return Everything(s, shares)
	}
	return ByExperts(s, shares)
}

// ByExperts divides the routed experts in proportion to shares [ranks], by Divide.
// Attention and the shared expert are replicated. Rank 0 computes the output head, because
// no other rank needs logits. Errors are those of Divide.
func ByExperts(s Sizes, shares []float64) (Placement, error) {
	experts, err := Divide(s.Experts, shares)
	if err != nil {
		return nil, err
	}
	p := make(Placement, len(shares))
	for r := range p {
		p[r] = Part{Experts: experts[r], Heads: Range{0, s.Heads}, Shared: Range{0, s.Shared},
			Vocabulary: Range{s.Vocabulary, s.Vocabulary}, Weight: shares[r]}
	}
	p[0].Vocabulary.Start = 0
	return p, nil
}

// Everything divides all of Sizes in proportion to shares [ranks], each by Divide.
// Errors are those of Divide.
func Everything(s Sizes, shares []float64) (Placement, error) {
	p, err := ByExperts(s, shares)
	if err != nil {
		return nil, err
	}
	for _, x := range []struct {
		n  int
		at func(*Part) *Range
	}{
		{s.Heads, func(p *Part) *Range { return &p.Heads }},
		{s.Shared, func(p *Part) *Range { return &p.Shared }},
		{s.Vocabulary, func(p *Part) *Range { return &p.Vocabulary }},
	} {
		if x.n == 0 {
			continue // the model has none
		}
		ranges, err := Divide(x.n, shares)
		if err != nil {
			return nil, err
		}
		for r := range p {
			*x.at(&p[r]) = ranges[r]
		}
	}
	return p, nil
}

// Experts returns the routed experts of each rank, [ranks].
func (p Placement) Experts() []Range {
	return p.ranges(func(x Part) Range { return x.Experts })
}

// Heads returns the groups of attention heads of each rank, [ranks].
func (p Placement) Heads() []Range { return p.ranges(func(x Part) Range { return x.Heads }) }

// Shared returns the segments of the shared expert, or of a dense FFN, of each rank,
// [ranks].
func (p Placement) Shared() []Range { return p.ranges(func(x Part) Range { return x.Shared }) }

// Vocabulary returns the rows of the output head of each rank, [ranks].
func (p Placement) Vocabulary() []Range { return p.ranges(func(x Part) Range { return x.Vocabulary }) }

func (p Placement) ranges(of func(Part) Range) []Range {
	out := make([]Range, len(p))
	for r, x := range p {
		out[r] = of(x)
	}
	return out
}

// Copies reports whether a rank has copies of experts.
func (p Placement) Copies() bool {
	return slices.ContainsFunc(p, func(x Part) bool { return len(x.Copies) > 0 })
}

// Assigner makes the Assigner of a placement that covers so many experts.
func (p Placement) Assigner(experts int) *assign.Assigner {
	ranks := make([]assign.Rank, len(p))
	for r, x := range p {
		ranks[r] = assign.Rank{Own: [2]int{x.Experts.Start, x.Experts.End}, Copies: x.Copies, Speed: x.Speed}
	}
	return assign.New(experts, ranks)
}

// WithSpeeds returns the placement with speeds [ranks]; nil leaves it as it is.
func (p Placement) WithSpeeds(speeds []int) Placement {
	if len(speeds) != len(p) {
		return p
	}
	out := slices.Clone(p)
	for r := range out {
		out[r].Speed = speeds[r]
	}
	return out
}

// WithoutCopies returns the placement without its copies.
func (p Placement) WithoutCopies() Placement {
	out := slices.Clone(p)
	for r := range out {
		out[r].Copies = nil
	}
	return out
}

// Waits reports whether the host of any rank waits for the choice of experts; see Part.
func (p Placement) Waits() bool { return slices.ContainsFunc(p, func(x Part) bool { return x.Waits }) }

// Has reports whether the rank owns an expert of a layer or has a copy of it.
func (x Part) Has(layer, e int) bool {
	if x.Layers != (Range{}) && (layer < x.Layers.Start || layer >= x.Layers.End) {
		return false
	}
	return e >= x.Experts.Start && e < x.Experts.End || assign.CopiesOf(x.Copies, layer).Has(e)
}

// Held is a range that has all experts of the rank, copies included.
func (x Part) Held() Range {
	held := x.Experts
	for _, s := range x.Copies {
		switch first := s.First(); {
		case first < 0:
		case held.Len() == 0:
			held = Range{first, s.End()}
		default:
			held = Range{min(held.Start, first), max(held.End, s.End())}
		}
	}
	return held
}

// Sizes returns the sizes that the placement covers, which is where its last ranges end.
func (p Placement) Sizes() Sizes {
	if len(p) == 0 {
		return Sizes{}
	}
	last := p[len(p)-1]
	return Sizes{Experts: last.Experts.End, Heads: last.Heads.End, Shared: last.Shared.End, Vocabulary: last.Vocabulary.End, Layers: last.Layers.End}
}

// Check returns an error if the placement does not divide a model of the given sizes among
// that many ranks. Errors wrap distributed.ErrArgument and name what is wrong.
func (p Placement) Check(s Sizes, ranks int) error {
	if len(p) == 0 || s.Experts < 1 {
		return fmt.Errorf("a placement of %d experts among %d ranks: %w", s.Experts, len(p), distributed.ErrArgument)
	}
	if len(p) > assign.MaxRanks {
		return fmt.Errorf("a placement on %d ranks; at most %d are possible: %w", len(p), assign.MaxRanks, distributed.ErrArgument)
	}
	if p.Staged() {
		return p.checkStages(s, ranks)
	}
	if p.Helped() {
		return p.checkHelp(s, ranks)
	}
	for r, x := range p {
		if x.Help != nil {
			return fmt.Errorf("rank %d is a helper; only rank 1 of two may be one: %w", r, distributed.ErrArgument)
		}
		if x.Layers != (Range{}) {
			return fmt.Errorf("rank %d has the layers %v and rank 0 all: %w", r, x.Layers, distributed.ErrArgument)
		}
		if !(x.Weight > 0) || math.IsInf(x.Weight, 0) {
			return fmt.Errorf("the weight of rank %d is %v; expected a positive number: %w", r, x.Weight, distributed.ErrArgument)
		}
		if x.Rows < 0 || x.Rows != p[0].Rows {
			return fmt.Errorf("rank %d divides steps from %d rows on and rank 0 from %d; expected the same number, not negative: %w", r, x.Rows, p[0].Rows, distributed.ErrArgument)
		}
		if err := x.checkCopies(r, s.Experts); err != nil {
			return err
		}
	}
	if err := CheckDivision("experts", s.Experts, ranks, p.Experts()); err != nil {
		return err
	}
	for _, x := range []struct {
		what   string
		n      int
		ranges []Range
	}{{"heads", s.Heads, p.Heads()}, {"shared", s.Shared, p.Shared()}, {"vocabulary", s.Vocabulary, p.Vocabulary()}} {
		if err := checkShared(x.what, x.n, ranks, x.ranges); err != nil {
			return err
		}
	}
	return nil
}

// mostLayers is more than the layers of any model.
const mostLayers = 1 << 10

// checkCopies checks the copies of a rank.
func (x Part) checkCopies(rank, experts int) error {
	if x.Speed < 0 || x.Speed > assign.MaxSpeed {
		return fmt.Errorf("the speed of rank %d is %d; expected 0 to %d: %w", rank, x.Speed, assign.MaxSpeed, distributed.ErrArgument)
	}
	if n := len(x.Copies); n > mostLayers {
		return fmt.Errorf("rank %d has copies in %d layers; at most %d are possible: %w", rank, n, mostLayers, distributed.ErrArgument)
	}
	for _, s := range x.Copies {
		if s.End() > experts {
			return fmt.Errorf("rank %d has a copy of expert %d of %d: %w", rank, s.End()-1, experts, distributed.ErrArgument)
		}
	}
	return nil
}

// Replicated reports whether every rank has all n things.
func Replicated(n int, ranges []Range) bool {
	return !slices.ContainsFunc(ranges, func(r Range) bool { return r != Range{0, n} })
}

// checkShared checks that ranges are a division of n things, or the whole on every
// rank.
func checkShared(what string, n, ranks int, ranges []Range) error {
	if n >= 0 && Replicated(n, ranges) {
		return nil
	}
	return CheckDivision(what, n, ranks, ranges)
}
