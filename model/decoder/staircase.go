package decoder

import (
	"cmp"
	"slices"

	"ringmaster/model"
	"ringmaster/parallel"
)

// A staircase prefill leaves out the rows of a prompt that no later token depends on. The
// layers of some architectures have no history but a window of rows from some layer on, so
// of a prompt that layer needs many of the last rows, the next one fewer, and the last
// layer only those whose logits may be wanted. What is computed has the bits of a prefill
// without it, because a row depends on no row that is left out.

// Stairs says from which layer on a Network needs only the last rows of a prompt.
type Stairs struct {
	// From is the first layer that may leave rows out. It gets all rows, because it may make
	// history of them; those after it have no history but their windows.
	From int
	// Reach is how many earlier rows a row reads in the window of a layer.
	Reach int
	// Group is how many positions make an entry of the history beyond the windows: a
	// multiple of those of every layer, at least 1.
	Group int
	// Before is how many tokens before a row its layers read the ids of.
	Before int
}

// Staircase is a Network whose last layers need only the last rows of a prompt. Layers then
// gets steps of which each layer computes the rows of Step.Leaving from those of
// Step.Entering.
type Staircase interface{ Stairs() Stairs }

// first is the first position of which a layer has an output if a sequence is to be whole at
// until and up to slack positions before it. In a replay the sequence has the history beyond
// the windows of the positions before known, a multiple of Group; otherwise known is 0.
func (s Stairs) first(layer, layers, until, slack, known int) int {
	switch {
	case until == 0 || layer < s.From && known == 0:
		return 0
	case layer < s.From: // it serves the windows of the layers up to From, and history from known on
		enters := min(known, until-1-slack-s.Reach*(layers-s.From))
		return max(enters-s.Reach*(s.From-1-layer), 0)
	}
	return max(until-1-slack-s.Reach*(layers-1-layer), 0)
}

// tail is for how many of the last positions of a prompt more than the rows that enter
// layer From are computed.
func (s Stairs) tail(layers, slack int) int { return 1 + slack + s.Reach*(layers-s.From) }

// replay is how many tokens before the end of a replay its first one is: those with rows in
// the window of layer 0, and those whose ids these need.
func (s Stairs) replay(layers, slack int) int { return 1 + slack + s.Reach*layers + s.Before }

// piece is consecutive tokens of an entry of a step that the same layers have outputs of.
type piece struct {
	entry, at, n int // the tokens [at, at+n) of the entry
	layers       int // the first so many
	known        int // that of the entry
}

// pieces divides the entries of a step into pieces, those of the fewest layers first. So the
// rows that a layer computes are the last of the step.
func (m *Model[C]) pieces(step model.Step, forks map[model.SeqID]standing) []piece {
	list := make([]piece, 0, len(step.Entries))
	layers := m.o.Layers
	for i, e := range step.Entries {
		at, known := 0, m.known(e, forks)
		l := m.stairs.From
		if known > 0 {
			l = 0
		}
		for ; e.Until > 0 && l < layers; l++ {
			end := m.stairs.first(l, layers, e.Until, m.o.Info.Rewind, known) - e.Pos
			if end = min(end, len(e.Tokens)); end > at {
				list, at = append(list, piece{i, at, end - at, l, known}), end
			}
		}
		if at < len(e.Tokens) {
			list = append(list, piece{i, at, len(e.Tokens) - at, layers, known})
		}
	}
	slices.SortStableFunc(list, func(a, b piece) int { return cmp.Compare(a.layers, b.layers) })
	return list
}

// known is the position up to which the sequence of an entry has history beyond the windows
// that the entry must not make again, a multiple of Group; 0 if it is in no replay.
func (m *Model[C]) known(e model.Entry, forks map[model.SeqID]standing) int {
	is, fork := forks[e.Seq]
	if !fork {
		is = m.standing(e.Seq)
	}
	if e.Pos == 0 {
		return 0
	}
	return is.replayed / m.stairs.Group * m.stairs.Group
}

// starts are the first rows [layers] of which each layer has an output, for pieces in their
// order; nil if every layer has all.
func (m *Model[C]) starts(list []piece) []int {
	if len(list) == 0 || list[0].layers == m.o.Layers {
		return nil
	}
	starts := make([]int, m.o.Layers)
	row, i := 0, 0
	for l := range starts {
		for ; i < len(list) && list[i].layers <= l; i++ {
			row += list[i].n
		}
		starts[l] = row
	}
	return starts
}

// Entering is the step with the rows that a layer gets: those that the layer before it has
// outputs of.
func (s Step[C]) Entering(layer int) Step[C] {
	if layer == 0 {
		return s
	}
	return s.Leaving(layer - 1)
}

// Leaving is the step with the rows that a layer has outputs of. None may be left, of the
// step or of this rank's rows.
func (s Step[C]) Leaving(layer int) Step[C] {
	if s.starts == nil || s.starts[layer] == s.Live.Start {
		return s
	}
	first := s.starts[layer]
	from := func(r parallel.Range) parallel.Range {
		return parallel.Range{Start: max(r.Start, first), End: max(r.End, first)}
	}
	s.Live, s.Own = from(s.Live), from(s.Own)
	if s.Cut != nil {
		s.Cut = slices.Clone(s.Cut)
		for r := range s.Cut {
			s.Cut[r] = from(s.Cut[r])
		}
	}
	i := slices.IndexFunc(s.Segments, func(g Segment[C]) bool { return g.First >= first })
	if i < 0 {
		i = len(s.Segments)
	}
	s.Segments = s.Segments[i:]
	return s
}

// LiveCut is Cut within the rows Live, counted from the first of them; nil if Cut is.
func (s Step[C]) LiveCut() []parallel.Range {
	if s.Cut == nil || s.Live.Start == 0 {
		return s.Cut
	}
	cut := make([]parallel.Range, len(s.Cut))
	for r, x := range s.Cut {
		cut[r] = parallel.Range{Start: x.Start - s.Live.Start, End: x.End - s.Live.Start}
	}
	return cut
}
