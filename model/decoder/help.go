package decoder

import (
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/parallel"
)

// A helper computes the last layers of long steps. Rank 0 has all layers and the whole state of
// every sequence, and runs the other steps alone; rank 1, the helper, has its layers alone.
//
// A long step goes through both as through two stages. Beside the rows of the next piece, the
// helper sends what the piece before has left in the KV caches of its layers, so rank 0 has the
// state of all layers again. What the last piece leaves arrives after the step; until then rank
// 0 keeps the rows that it sent, from which it computes that state itself if the helper is lost.
// Before a long step rank 0 sends the state of positions that it computed alone.

// helpBytes bounds the bytes of one message with the state that the helper lacks.
const helpBytes = 8 << 20

// part is consecutive positions of a sequence.
type part[C Cache] struct {
	id       model.SeqID
	q        *sequence[C]
	from, to int
}

// owed is the state that the last piece of the last step leaves in the layers of the helper and
// that rank 0 does not have yet.
type owed[C Cache] struct {
	layers  parallel.Range
	parts   []part[C]
	ids     []int32              // [rows] tokens of the piece
	rows    []float32            // of the piece, as they left rank 0
	state   []byte               // what arrives
	pending *distributed.Pending // nil once it has ended: then the helper is lost
}

// helps reports whether this rank is the helper.
func (p *pipeline) helps() bool { return p != nil && p.help != nil && p.at == 1 }

// helped reports whether this rank has a helper.
func (p *pipeline) helped() bool { return p != nil && p.help != nil && p.at == 0 }

// enterHelp makes the model one rank of a placement with a helper.
func (m *Model[C]) enterHelp(g *distributed.Group, p parallel.Placement) error {
	halves := p.Halves()
	if first := halves[1].Layers.Start; !m.network.Splits(first) {
		return fmt.Errorf("the helper begins with layer %d, which reads what an earlier layer has made of the same tokens; choose another first layer: %w", first, distributed.ErrArgument)
	}
	if m.drafter != nil { // it continues the last layer of all rows
		if err := m.drafter.block.Close(); err != nil {
			return err
		}
		m.drafter = nil
	}
	m.pipeline = &pipeline{world: g, stages: halves, at: g.Rank(), help: p[1].Help}
	if m.pipeline.helps() {
		m.setSpan(halves[1].Layers)
		m.dropAll()
		return nil
	}
	m.setSpan(parallel.Range{End: m.o.Layers})
	for _, q := range m.sequences {
		q.helper = 0
	}
	return nil
}

// Help returns Step.Help for a step that is to go through the helper, nil for one that rank 0
// runs alone: one that is short without the entries of sequences of which the helper lacks much,
// and one that runs tokens again. A helped step leaves no rows out.
func (m *Model[C]) Help(step model.Step) []int {
	p := m.pipeline
	if !p.helped() || p.help.Rows == 0 {
		return nil
	}
	rows := 0
	for _, e := range step.Entries {
		rows += len(e.Tokens)
	}
	if rows < p.help.Rows {
		return nil // most steps, of single tokens
	}
	forks, err := m.checkForks(step)
	if err != nil {
		return nil // Prepare says what is wrong
	}
	if slices.ContainsFunc(step.Entries, func(e model.Entry) bool { return m.known(e, forks) > 0 }) {
		return nil
	}
	from := make([]int, len(step.Entries))
	for i, e := range step.Entries {
		q := m.sequences[e.Seq]
		if fork := slices.IndexFunc(step.Forks, func(f model.Fork) bool { return f.Seq == e.Seq }); fork >= 0 {
			q = m.sequences[step.Forks[fork].From] // which has as much
		} else if q != nil {
			from[i] = min(q.helper, e.Pos)
		}
		if q == nil || from[i] == e.Pos {
			continue
		}
		if bytesOf(q.cache.StateOf(p.stages[1].Layers, from[i], e.Pos, e.Pos)) > int64(len(e.Tokens))*p.help.Missing {
			from[i] = model.Unhelped
			rows -= len(e.Tokens)
		}
	}
	if rows < p.help.Rows {
		return nil
	}
	return from
}

// prepareHelp is prepare on the helper: it makes room for the state of a step in which it
// helps, and does nothing for another.
func (m *Model[C]) prepareHelp(step model.Step) error {
	s := &Step[C]{Layers: m.span}
	m.step = s
	if step.Help == nil {
		s.others = len(step.Entries) > 0
		return nil
	}
	for i, e := range step.Entries {
		from := step.Help[i]
		if from == model.Unhelped {
			continue
		}
		if has := m.Len(e.Seq); from > has || from > e.Pos || from < 0 {
			return m.errorf("sequence %d: rank 0 continues %d of the first %d tokens, but the helper has %d", e.Seq, from, e.Pos, has)
		}
		if s.Rows+len(e.Tokens) > m.o.Info.MaxTokens {
			return m.errorf("a step of more than %d tokens", m.o.Info.MaxTokens)
		}
		cache, err := m.reserve(e.Seq, e.Pos+len(e.Tokens))
		if err != nil {
			return err
		}
		s.missing = append(s.missing, part[C]{e.Seq, m.sequences[e.Seq], from, e.Pos})
		s.Segments = append(s.Segments, Segment[C]{Seq: e.Seq, Cache: cache, First: s.Rows, N: len(e.Tokens), Pos: e.Pos})
		s.Wanted = piece{n: len(e.Tokens)}.wanted(s.Wanted, e, s.Rows)
		for t, id := range e.Tokens {
			m.ids[s.Rows+t], m.pos[s.Rows+t] = id, int32(e.Pos+t)
		}
		s.End = max(s.End, e.Pos+len(e.Tokens))
		s.Rows += len(e.Tokens)
	}
	s.IDs, s.Pos, s.helped = m.ids[:s.Rows], m.pos[:s.Rows], s.Rows
	s.Live, s.Own = parallel.Range{End: s.Rows}, parallel.Range{End: s.Rows}
	return nil
}

// helpedEntries are the entries of a step that leaves nothing out, first those that the helper
// computes, of so many rows.
func helpedEntries(step model.Step, layers int) (list []piece, rows int) {
	var alone []piece
	for i, e := range step.Entries {
		p := piece{entry: i, n: len(e.Tokens), layers: layers}
		if step.Help[i] == model.Unhelped {
			alone = append(alone, p)
			continue
		}
		list = append(list, p)
		rows += p.n
	}
	return append(list, alone...), rows
}

// lacks lists what rank 0 sends the helper before a step.
func (m *Model[C]) lacks(step model.Step) (list []part[C]) {
	for i, e := range step.Entries {
		if step.Help[i] != model.Unhelped {
			list = append(list, part[C]{e.Seq, m.sequences[e.Seq], step.Help[i], e.Pos})
		}
	}
	return list
}

// inEntries are rows of a helped step in the order of the entries.
func inEntries[C Cache](rows []int32, segments []Segment[C], step model.Step) (list []int32) {
	for _, e := range step.Entries {
		for _, g := range segments {
			if g.Seq != e.Seq {
				continue
			}
			for _, i := range rows {
				if int(i) >= g.First && int(i) < g.First+g.N {
					list = append(list, i)
				}
			}
		}
	}
	return list
}

// helpedOf are the sequences of a step whose entries the helper has run.
func (m *Model[C]) helpedOf(s *Step[C]) map[model.SeqID]bool {
	if s.helped == 0 {
		return nil
	}
	all := map[model.SeqID]bool{}
	for _, g := range s.Segments {
		all[g.Seq] = g.First < s.helped
	}
	return all
}

// noteHelped notes which positions of the sequences of a step the helper has while it runs.
func (m *Model[C]) noteHelped(s *Step[C]) {
	if m.pipeline == nil || m.pipeline.help == nil {
		return
	}
	m.pipeline.kept, m.pipeline.sum = m.pipeline.kept[:0], 0
	for _, g := range s.Segments {
		if q := m.sequences[g.Seq]; q != nil {
			q.helper = min(q.helper, g.Pos)
		}
	}
}

// commitHelp is Commit on the helper. Its lengths are those of which it has the state.
func (m *Model[C]) commitHelp(s model.Step, helped map[model.SeqID]bool) {
	m.step = nil
	for _, e := range s.Entries {
		switch q := m.sequences[e.Seq]; {
		case q == nil:
		case helped[e.Seq]:
			q.length = e.Pos + len(e.Tokens)
		default:
			q.length = min(q.length, e.Pos)
		}
	}
	for _, id := range s.Drop {
		m.drop(id)
	}
}
