package parallel

import (
	"fmt"
	"math"

	"ringmaster/distributed"
)

// Sizes is what of a model can be divided.
type Sizes struct {
	Experts    int // routed experts of each layer
	Heads      int // groups of attention heads of each layer
	Vocabulary int // rows of the output head
}

// Part is what one rank computes of each layer and of the output head.
type Part struct {
	Experts    Range   `json:"experts"`
	Heads      Range   `json:"heads"`
	Vocabulary Range   `json:"vocabulary"`
	Weight     float64 `json:"weight"` // in a division of rows; only ratios matter
}

// Placement is which part of a model each rank computes, [ranks] by rank. The leader
// makes it when an epoch forms, and it travels in the settings of the epoch. Experts
// are always divided: the ranges are consecutive and cover all of them. The others
// are divided in the same way, or replicated: every rank has the whole.
type Placement []Part

// ByExperts divides the routed experts in proportion to shares [ranks], by Divide.
// Attention is replicated, and rank 0, which alone needs logits, computes the output
// head. Errors are those of Divide.
func ByExperts(s Sizes, shares []float64) (Placement, error) {
	experts, err := Divide(s.Experts, shares)
	if err != nil {
		return nil, err
	}
	p := make(Placement, len(shares))
	for r := range p {
		p[r] = Part{Experts: experts[r], Heads: Range{0, s.Heads}, Vocabulary: Range{s.Vocabulary, s.Vocabulary}, Weight: shares[r]}
	}
	p[0].Vocabulary.Start = 0
	return p, nil
}

// Experts are the routed experts of each rank, [ranks].
func (p Placement) Experts() []Range {
	return p.ranges(func(x Part) Range { return x.Experts })
}

func (p Placement) ranges(of func(Part) Range) []Range {
	out := make([]Range, len(p))
	for r, x := range p {
		out[r] = of(x)
	}
	return out
}

// Sizes is the sizes that the placement covers: where its last ranges end.
func (p Placement) Sizes() Sizes {
	if len(p) == 0 {
		return Sizes{}
	}
	last := p[len(p)-1]
	return Sizes{Experts: last.Experts.End, Heads: last.Heads.End, Vocabulary: last.Vocabulary.End}
}

// Check refuses a placement that does not divide a model of the given sizes among so
// many ranks. Errors wrap distributed.ErrArgument and name what is wrong.
func (p Placement) Check(s Sizes, ranks int) error {
	if len(p) == 0 || s.Experts < 1 {
		return fmt.Errorf("parallel: a placement of %d experts among %d ranks: %w", s.Experts, len(p), distributed.ErrArgument)
	}
	for r, x := range p {
		if !(x.Weight > 0) || math.IsInf(x.Weight, 0) {
			return fmt.Errorf("parallel: the weight of rank %d is %v; expected a positive number: %w", r, x.Weight, distributed.ErrArgument)
		}
	}
	if err := CheckDivision("experts", s.Experts, ranks, p.Experts()); err != nil {
		return err
	}
	heads := p.ranges(func(x Part) Range { return x.Heads })
	if err := checkShared("heads", s.Heads, ranks, heads); err != nil {
		return err
	}
	return checkShared("vocabulary", s.Vocabulary, ranks, p.ranges(func(x Part) Range { return x.Vocabulary }))
}

// Replicated reports whether every rank has all n things.
func Replicated(n int, ranges []Range) bool {
	for _, r := range ranges {
		if r != (Range{0, n}) {
			return false
		}
	}
	return true
}

// checkShared checks that ranges are a division of n things, or the whole on every
// rank.
func checkShared(what string, n, ranks int, ranges []Range) error {
	if n >= 0 && Replicated(n, ranges) {
		return nil
	}
	return CheckDivision(what, n, ranks, ranges)
}
