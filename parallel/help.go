package parallel

import (
	"fmt"
	"slices"

	"ringmaster/distributed"
)

// Help is how a helper computes the last layers of the long steps of another rank. Rank 0 has
// all layers and all state, and runs every other step alone; rank 1, the helper, has the layers
// of its Part alone.
type Help struct {
	Rows int `json:"rows"` // steps of so many rows or more go through the helper; 0: none does
	// Missing bounds the bytes of state that rank 0 first sends the helper, for each row of an
	// entry: rank 0 runs an entry that needs more alone.
	Missing int64 `json:"missing"`
}

// Helped reports whether rank 1 of a placement is the helper of rank 0.
func (p Placement) Helped() bool { return len(p) == 2 && p[1].Help != nil }

// WithHelper is the placement of a model of the given sizes whose layers from first on the
// second of two ranks computes in long steps.
func WithHelper(s Sizes, first int, h Help) (Placement, error) {
	one, err := Place(ShareExperts, s, []float64{1})
	if err != nil {
		return nil, err
	}
	helper := one[0]
	helper.Layers, helper.Help = Range{first, s.Layers}, &h
	helper.Vocabulary = Range{s.Vocabulary, s.Vocabulary} // rank 0 has the output head
	p := append(one, helper)
	return p, p.Check(s, 2)
}

// HelpedFrom is a placement with a helper whose layers begin with first, and that helps so.
func (p Placement) HelpedFrom(first int, h Help) Placement {
	out := slices.Clone(p)
	out[1].Layers.Start, out[1].Help = first, &h
	return out
}

// Halves are the stages through which a long step of a placement with a helper goes.
func (p Placement) Halves() []Stage {
	layers := p[1].Layers
	return []Stage{{Range{0, layers.Start}, Range{0, 1}}, {layers, Range{1, 2}}}
}

// checkHelp checks a placement with a helper.
func (p Placement) checkHelp(s Sizes, ranks int) error {
	home, helper := p[0], p[1]
	at := helper.Layers
	whole := s
	whole.Layers = 0
	plain := helper
	plain.Layers, plain.Help, plain.Vocabulary = Range{}, nil, Range{0, s.Vocabulary}
	switch {
	case ranks != 2:
		return fmt.Errorf("a helper in a group of %d ranks; expected 2: %w", ranks, distributed.ErrArgument)
	case at.Start < 1 || at.End != s.Layers || at.Start >= at.End:
		return fmt.Errorf("the helper has the layers %v; expected the last ones of %d, without layer 0: %w", at, s.Layers, distributed.ErrArgument)
	case helper.Help.Rows < 0 || helper.Help.Missing < 0:
		return fmt.Errorf("the helper computes steps from %d rows on, with %d bytes for each; expected none below 0: %w", helper.Help.Rows, helper.Help.Missing, distributed.ErrArgument)
	case helper.Vocabulary.Len() != 0:
		return fmt.Errorf("the helper has the rows %v of the output head, which rank 0 computes: %w", helper.Vocabulary, distributed.ErrArgument)
	}
	if err := (Placement{home}).Check(whole, 1); err != nil {
		return err
	}
	if err := (Placement{plain}).Check(whole, 1); err != nil {
		return fmt.Errorf("the helper: %w", err)
	}
	return nil
}
