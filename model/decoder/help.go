package decoder

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/model"
	"ringmaster/model/snapshot"
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

// runHelped runs a step that the helper continues, on rank 0. While it computes a piece, the
// piece before it leaves and the state of the third before it arrives.
func (m *Model[C]) runHelped(ctx context.Context, s *Step[C]) error {
	p, carried := m.pipeline, m.network.Carried()
	if err := m.tellHelper(ctx, s.missing); err != nil {
		return err
	}
	through := s.through()
	pieces, width := m.enterPieces(&through, carried)
	at := func(k int) []float32 { return p.out[k%2][:pieces[k].Len()*width] }
	states := make([][]part[C], len(pieces))
	last := len(pieces) - 1
	for k, rows := range pieces {
		states[k] = m.partsOf(&through, rows)
		// Nothing travels beside the first piece but the state that is still owed.
		var messages *distributed.Pending
		var state []byte
		if k >= 3 {
			state = m.stateBuffer(states[k-3])
		}
		if k > 0 {
			messages = p.exchange(ctx, state, rowBytes(at(k-1)))
		}
		part := m.piece(&through, rows)
		part.Layers = p.stages[0].Layers
		err := m.network.Layers(ctx, part)
		if messages != nil {
			if failed := messages.Wait(); err == nil && failed != nil {
				err = fmt.Errorf("rows to the helper: %w", failed)
			}
		}
		if failed := m.collect(); err == nil {
			err = failed
		}
		if err == nil && k >= 3 {
			err = m.store(states[k-3], state)
		}
		if err != nil {
			return err
		}
		if err := m.leave(at(k), carried, rows.Len()); err != nil {
			return err
		}
	}
	var own map[int][]float32
	for k := last - 2; k < last; k++ { // what the helper sends while it computes the last two
		var state []byte
		if k >= 0 {
			state = m.stateBuffer(states[k])
		}
		var src []byte
		if k == last-2 {
			src = rowBytes(at(last))
		}
		if state == nil && src == nil {
			continue
		}
		if err := p.exchange(ctx, state, src).Wait(); err != nil {
			return fmt.Errorf("rows to the helper: %w", err)
		}
		if k >= 0 {
			if err := m.store(states[k], state); err != nil {
				return err
			}
		}
		if src != nil { // the helper has all rows, and two pieces to compute
			var err error
			if own, err = m.runAlone(ctx, s); err != nil {
				return err
			}
		}
	}
	if err := m.finalRows(ctx, &through); err != nil {
		return err
	}
	for i, row := range own {
		copy(m.network.Hidden(i), row)
	}
	rows := pieces[last]
	o := &owed[C]{layers: p.stages[1].Layers, parts: states[last], ids: slices.Clone(s.IDs[rows.Start:rows.End]), rows: at(last), state: m.stateBuffer(states[last])}
	o.pending = p.exchange(ctx, o.state, nil)
	m.owed = o
	return nil
}

// through is the part of a step that the helper continues.
func (s *Step[C]) through() Step[C] {
	t := *s
	t.Rows, t.Wanted = s.helped, nil
	for _, i := range s.Wanted {
		if int(i) < s.helped {
			t.Wanted = append(t.Wanted, i)
		}
	}
	return t
}

// runAlone runs the rows of a helped step that do not go through the helper, while it computes,
// and returns the final hidden states of those that are wanted, by row.
func (m *Model[C]) runAlone(ctx context.Context, s *Step[C]) (map[int][]float32, error) {
	if s.helped == s.Rows {
		return nil, nil
	}
	own := map[int][]float32{}
	part := m.piece(s, parallel.Range{Start: s.helped, End: s.Rows})
	if err := m.network.Layers(ctx, part); err != nil {
		return nil, err
	}
	if err := m.o.Backend.Flush(); err != nil {
		return nil, err
	}
	for _, i := range part.Wanted {
		row, err := m.readable(m.network.Hidden(int(i)))
		if err != nil {
			return nil, err
		}
		own[s.helped+int(i)] = slices.Clone(row)
	}
	return own, nil
}

// runHelper runs a step on the helper.
func (m *Model[C]) runHelper(ctx context.Context, s *Step[C]) error {
	p, carried := m.pipeline, m.network.Carried()
	for _, x := range s.missing {
		x.q.length = min(x.q.length, x.from)
	}
	if err := m.hearMissing(ctx, s.missing); err != nil {
		return err
	}
	pieces, width := m.enterPieces(s, carried)
	at := func(k int) []float32 { return p.in[k%2][:pieces[k].Len()*width] }
	var state []byte
	for k, rows := range pieces {
		if k == 0 {
			if err := p.exchange(ctx, rowBytes(at(0)), nil).Wait(); err != nil {
				return fmt.Errorf("rows from rank 0: %w", err)
			}
		}
		if err := m.arrive(ctx, at(k), carried, rows.Len()); err != nil {
			return err
		}
		var messages *distributed.Pending
		var next []byte
		if k+1 < len(pieces) {
			next = rowBytes(at(k + 1))
		}
		if next != nil || state != nil {
			messages = p.exchange(ctx, next, state)
		}
		err := m.network.Layers(ctx, m.piece(s, rows))
		if messages != nil {
			if failed := messages.Wait(); err == nil && failed != nil {
				err = fmt.Errorf("rows from rank 0: %w", failed)
			}
		}
		if err != nil {
			return err
		}
		parts := m.partsOf(s, rows)
		state = m.stateBuffer(parts)
		if err := m.fetch(parts, state); err != nil {
			return err
		}
		if err := m.keep(s, rows); err != nil {
			return err
		}
	}
	if err := m.finalRows(ctx, s); err != nil {
		return err
	}
	if err := p.exchange(ctx, nil, state).Wait(); err != nil {
		return fmt.Errorf("state to rank 0: %w", err)
	}
	return nil
}

// enterPieces divides a step that both ranks compute into pieces and makes room for their rows,
// each of so many numbers.
func (m *Model[C]) enterPieces(s *Step[C], carried []Carried) (pieces []parallel.Range, width int) {
	p := m.pipeline
	for _, c := range carried {
		width += c.Width
	}
	pieces = Pieces(s.Rows, len(p.stages), len(s.Wanted) > 0)
	ends := &p.out
	if p.helps() {
		ends = &p.in
	}
	room := (pieces[0].Len() + 1) * width
	for i := range ends {
		ends[i] = slices.Grow(ends[i][:0], room) // rows that are owed stay in their memory
	}
	return pieces, width
}

// exchange begins to receive dst from the other rank and to send it src; nil: nothing.
func (p *pipeline) exchange(ctx context.Context, dst, src []byte) *distributed.Pending {
	from, to := 1-p.at, 1-p.at
	if dst == nil {
		from = -1
	}
	if src == nil {
		to = -1
	}
	pending := p.world.StartMessages(ctx, dst, from, src, to)
	return &pending
}

// partsOf lists the positions that a piece of a step computes.
func (m *Model[C]) partsOf(s *Step[C], rows parallel.Range) (list []part[C]) {
	for _, g := range s.Segments {
		if g, ok := g.Part(rows); ok {
			list = append(list, part[C]{g.Seq, m.sequences[g.Seq], g.Pos, g.Pos + g.N})
		}
	}
	return list
}

// stateOf is what the KV caches of some layers have of parts. A sequence counts as never having
// been longer, so that it can be rewound as far as possible.
func stateOf[C Cache](layers parallel.Range, parts []part[C]) (list []snapshot.Section) {
	for _, x := range parts {
		if x.from < x.to {
			list = append(list, x.q.cache.StateOf(layers, x.from, x.to, x.to)...)
		}
	}
	return list
}

// bytesOf is the bytes of sections.
func bytesOf(list []snapshot.Section) (n int64) {
	for _, s := range list {
		n += s.Bytes()
	}
	return n
}

// stateBuffer is memory for the state of parts in the layers of the helper; it is valid until
// the next one.
func (m *Model[C]) stateBuffer(parts []part[C]) []byte {
	p, n := m.pipeline, int(bytesOf(stateOf(m.pipeline.stages[1].Layers, parts)))
	p.state = slices.Grow(p.state[:0], n)
	return p.state[:n]
}

// store copies what has arrived to the KV caches, and fetch what leaves from them.
func (m *Model[C]) store(parts []part[C], from []byte) error {
	return m.eachPart(stateOf(m.pipeline.stages[1].Layers, parts), func(memory []byte) error {
		from = from[copy(memory, from):]
		return nil
	})
}

func (m *Model[C]) fetch(parts []part[C], to []byte) error {
	return m.eachPart(stateOf(m.pipeline.stages[1].Layers, parts), func(memory []byte) error {
		err := m.reader.Read(to[:len(memory)], memory)
		to = to[len(memory):]
		return err
	})
}

// eachPart calls f with all memory of sections, once the ops that use it have run.
func (m *Model[C]) eachPart(list []snapshot.Section, f func(memory []byte) error) error {
	if err := m.o.Backend.Flush(); err != nil {
		return err
	}
	for _, s := range list {
		for _, memory := range s.Parts {
			if err := f(memory); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellHelper sends the helper the state that it lacks, and hearMissing receives it there.
func (m *Model[C]) tellHelper(ctx context.Context, parts []part[C]) error {
	list := stateOf(m.pipeline.stages[1].Layers, parts)
	if bytesOf(list) == 0 {
		return nil
	}
	if err := m.settle(); err != nil { // the group carries one message at a time
		return err
	}
	out := make([]byte, 0, min(bytesOf(list), helpBytes))
	send := func() error {
		err := m.pipeline.exchange(ctx, nil, out).Wait()
		out = out[:0]
		return err
	}
	err := m.eachPart(list, func(memory []byte) error {
		for len(memory) > 0 {
			n := min(len(memory), cap(out)-len(out))
			if err := m.reader.Read(out[len(out):len(out)+n], memory[:n]); err != nil {
				return err
			}
			out, memory = out[:len(out)+n], memory[n:]
			if len(out) == cap(out) {
				if err := send(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && len(out) > 0 {
		err = send()
	}
	if err != nil {
		return fmt.Errorf("state to the helper: %w", err)
	}
	return nil
}

func (m *Model[C]) hearMissing(ctx context.Context, parts []part[C]) error {
	list := stateOf(m.span, parts)
	left := bytesOf(list)
	room := make([]byte, min(left, helpBytes))
	var in []byte
	err := m.eachPart(list, func(memory []byte) error {
		for len(memory) > 0 {
			if len(in) == 0 {
				in = room[:min(left, int64(len(room)))]
				left -= int64(len(in))
				if err := m.pipeline.exchange(ctx, in, nil).Wait(); err != nil {
					return err
				}
			}
			n := copy(memory, in)
			memory, in = memory[n:], in[n:]
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state from rank 0: %w", err)
	}
	return nil
}

// collect stores the state that the last step is owed once it has arrived. Its error is the
// group's: the helper is lost, and settle computes the state.
func (m *Model[C]) collect() error {
	o := m.owed
	if o == nil {
		return nil
	}
	if o.pending == nil {
		return errHelperLost
	}
	err := o.pending.Wait()
	if o.pending = nil; err != nil {
		return fmt.Errorf("state from the helper: %w", err)
	}
	at := 0
	for _, x := range o.parts {
		n := int(bytesOf(x.q.cache.StateOf(o.layers, x.from, x.to, x.to)))
		if m.sequences[x.id] == x.q { // it has not been dropped
			if err := m.store([]part[C]{x}, o.state[at:at+n]); err != nil {
				return err
			}
		}
		at += n
	}
	m.owed = nil
	return nil
}

var errHelperLost = fmt.Errorf("the helper was lost before the state of the last step arrived: %w", distributed.ErrPeerGone)

// Settle completes the state of all sequences: it waits for what the helper still sends, or
// computes it if the helper is lost. The group is then free. It must not run during a step.
func (m *Model[C]) Settle() error { return m.settle() }

func (m *Model[C]) settle() error {
	if m.collect() == nil {
		return nil
	}
	o := m.owed
	carried, first := m.network.Carried(), 0
	m.o.Meter.StartStep()
	m.o.Routed.StartStep(m.o.Layers)
	for _, x := range o.parts {
		n := x.to - x.from
		rows := parallel.Range{Start: first, End: first + n}
		first += n
		if m.sequences[x.id] != x.q {
			continue
		}
		if err := m.computeOwed(o, x, rows, carried); err != nil {
			return m.abandon(fmt.Errorf("state that the helper owed: %w", err))
		}
	}
	m.owed = nil
	return nil
}

// computeOwed runs the layers of the helper for some rows of the piece that is owed.
func (m *Model[C]) computeOwed(o *owed[C], x part[C], rows parallel.Range, carried []Carried) error {
	if err := m.o.Backend.Flush(); err != nil {
		return err
	}
	all, from := len(o.ids), o.rows
	for _, c := range carried { // the rows of each buffer follow each other
		copy(c.Data, from[rows.Start*c.Width:rows.End*c.Width])
		from = from[all*c.Width:]
	}
	n := rows.Len()
	copy(m.ids, o.ids[rows.Start:rows.End])
	for t := range n {
		m.pos[t] = int32(x.from + t)
	}
	s := Step[C]{Segments: []Segment[C]{{Seq: x.id, Cache: x.q.cache, N: n, Pos: x.from}}, Rows: n, Layers: o.layers,
		Live: parallel.Range{End: n}, Own: parallel.Range{End: n}, IDs: m.ids[:n], Pos: m.pos[:n], End: x.to}
	if err := m.network.Layers(context.Background(), s); err != nil {
		return err
	}
	return m.o.Backend.Flush()
}
