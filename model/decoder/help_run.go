package decoder

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/parallel"
)

// The steps of rank 0 and its helper, see help.go.

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
