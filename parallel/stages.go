package parallel

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/distributed"
)

// Stage is consecutive layers and the consecutive ranks that compute them. Inside of it
// experts and the rest are divided as in a group without stages. Ranks have the weights and
// the KV caches of the layers of their stage alone.
type Stage struct {
	Layers Range
	Ranks  Range
}

// Staged reports whether a placement has stages.
func (p Placement) Staged() bool { return len(p) > 0 && p[0].Layers != (Range{}) }

// Stages are the stages of a placement in the order of the layers; nil if every rank
// computes all layers. Stage 0 also computes the output head.
func (p Placement) Stages() []Stage {
	if !p.Staged() {
		return nil
	}
	var out []Stage
	for r, x := range p {
		if n := len(out); n > 0 && out[n-1].Layers == x.Layers {
			out[n-1].Ranks.End++
			continue
		}
		out = append(out, Stage{x.Layers, Range{r, r + 1}})
	}
	return out
}

// StageOf is the number of a rank's stage among stages.
func StageOf(stages []Stage, rank int) int {
	return slices.IndexFunc(stages, func(s Stage) bool { return rank >= s.Ranks.Start && rank < s.Ranks.End })
}

// InStages makes a placement of stages, each with its placement inside of parts: the ranks
// of stage i are those of parts[i], after those of the stages before.
func InStages(layers []Range, parts []Placement) Placement {
	var out Placement
	vocabulary := parts[0].Sizes().Vocabulary
	for i, p := range parts {
		for _, x := range p {
			if x.Layers = layers[i]; i > 0 { // the first stage has the output head
				x.Vocabulary = Range{vocabulary, vocabulary}
			}
			out = append(out, x)
		}
	}
	return out
}

// checkStages checks the stages of a placement on so many ranks.
func (p Placement) checkStages(s Sizes, ranks int) error {
	stages := p.Stages()
	if len(p) != ranks {
		return fmt.Errorf("stages of %d ranks in a group of %d: %w", len(p), ranks, distributed.ErrArgument)
	}
	at := 0
	for i, x := range stages {
		if x.Layers.Start != at || x.Layers.End <= at {
			return fmt.Errorf("stage %d has the layers %v; expected some from layer %d on: %w", i, x.Layers, at, distributed.ErrArgument)
		}
		at = x.Layers.End
	}
	if at != s.Layers {
		return fmt.Errorf("the stages have %d layers and the model %d: %w", at, s.Layers, distributed.ErrArgument)
	}
	for i, x := range stages {
		inside, of := p.Within(x), s
		of.Layers = 0
		if i > 0 {
			for _, part := range inside {
				if part.Vocabulary.Len() != 0 {
					return fmt.Errorf("stage %d has the rows %v of the output head, which stage 0 computes: %w", i, part.Vocabulary, distributed.ErrArgument)
				}
			}
			inside = inside.withHead(s.Vocabulary)
		}
		if err := inside.Check(of, x.Ranks.Len()); err != nil {
			return fmt.Errorf("stage %d: %w", i, err)
		}
	}
	return nil
}

// SplitStages splits a group into those of the stages of p, nil without stages. All ranks
// call it at the same time. Its error is that of Split.
func (p Placement) SplitStages(ctx context.Context, g *distributed.Group) (*distributed.Group, error) {
	if !p.Staged() {
		return nil, nil
	}
	inside, err := g.Split(ctx, StageOf(p.Stages(), g.Rank()), g.Rank())
	if err != nil {
		return nil, fmt.Errorf("the groups of stages: %w", err)
	}
	return inside, nil
}

// Within is the placement inside of a stage of p, for a group of its ranks.
func (p Placement) Within(s Stage) Placement {
	inside := slices.Clone(p[s.Ranks.Start:s.Ranks.End])
	for r := range inside {
		inside[r].Layers = Range{}
	}
	return inside
}

// withHead is the placement with all rows of the output head on its first rank.
func (p Placement) withHead(vocabulary int) Placement {
	out := slices.Clone(p)
	for r := range out {
		out[r].Vocabulary = Range{vocabulary, vocabulary}
	}
	out[0].Vocabulary.Start = 0
	return out
}
