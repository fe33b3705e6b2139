package decoder

import (
	"context"
	"fmt"
	"slices"

	"ringmaster/distributed"
	"ringmaster/model/snapshot"
	"ringmaster/parallel"
)

// The state of KV caches between rank 0 and its helper, see help.go.

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
