package decoder

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"ringmaster/distributed"
	"ringmaster/kernels"
	"ringmaster/parallel"
)

// Layers in stages. The rows of a step go through the stages in pieces, so that a stage
// computes one piece while the next stage computes the piece before it. Between two stages
// the first rank of each sends and receives what passes from layer to layer, as float32; it
// gives what it receives to the other ranks of its stage. The last stage sends the final
// hidden states of the wanted rows to the first, which has the output head. No bit changes,
// because no sum does and a row does not depend on the rows beside it.

// pipeline is the place of a rank in a group with stages.
type pipeline struct {
	world  *distributed.Group // all ranks
	inside *distributed.Group // the ranks of this stage; nil if it has one
	stages []parallel.Stage
	at     int // this one

	in, out [2][]float32   // pieces that arrive and leave
	help    *parallel.Help // of a helper, see help.go; nil: these are stages
	state   []byte         // of KV caches, on its way between rank 0 and the helper
	kept    []float32      // [wanted][Width] final hidden states
	sum     uint32         // their checksum; 0 on a rank that has not seen them
}

// pieceCost is how many rows take as long as what a piece costs in addition to its own, because
// every piece reads the weights: about what a prefill of 512 tokens in shorter steps showed
// (docs/distributed-benchmark.md).
const pieceCost = 64

// Pieces divides the rows of a step into the pieces in which they go through a number of
// stages: as many as take the least time if n pieces take (n+stages-1)·(rows/n+pieceCost) times
// a row. Of a step without wanted rows they are larger, because the next step follows without
// waiting for its end.
func Pieces(rows, stages int, wanted bool) []parallel.Range {
	n := max(1, min(rows, int(math.Round(math.Sqrt(float64(rows*(stages-1))/pieceCost)))))
	if !wanted {
		n = min(n, max(1, rows/(8*pieceCost)))
	}
	list := make([]parallel.Range, n)
	for i := range list {
		list[i] = parallel.Range{Start: i * rows / n, End: (i + 1) * rows / n}
	}
	return list
}

// StageBytes is the most bytes of the buffers of a rank in one of some stages for steps of so
// many tokens. A row between stages has carried bytes; a final hidden state has no more.
func StageBytes(maxTokens, stages int, carried int64) int64 {
	most := 0
	for rows := 1; rows <= maxTokens; rows++ {
		most = max(most, Pieces(rows, stages, false)[0].Len())
	}
	return (4*int64(most+1) + int64(maxTokens)) * carried
}

// enterStage makes the model one rank of a stage, whose group is inside. It returns that
// group, nil if it has one rank, and the placement inside.
func (m *Model[C]) enterStage(g, inside *distributed.Group, p parallel.Placement, stages []parallel.Stage) (*distributed.Group, parallel.Placement, error) {
	for i, s := range stages[1:] {
		if !m.network.Splits(s.Layers.Start) {
			return nil, nil, fmt.Errorf("stage %d begins with layer %d, which reads what an earlier layer has made of the same tokens; choose another first layer: %w",
				i+1, s.Layers.Start, distributed.ErrArgument)
		}
	}
	if m.drafter != nil { // the last layer, which it continues, is not on rank 0
		if err := m.drafter.block.Close(); err != nil {
			return nil, nil, err
		}
		m.drafter = nil
	}
	at := parallel.StageOf(stages, g.Rank())
	if inside == nil || inside.Size() != stages[at].Ranks.Len() {
		return nil, nil, fmt.Errorf("stage %d has %d ranks, but no group of them: %w", at, stages[at].Ranks.Len(), distributed.ErrArgument)
	}
	m.setSpan(stages[at].Layers)
	m.pipeline = &pipeline{world: g, stages: stages, at: at}
	if inside.Size() == 1 {
		return nil, nil, nil
	}
	m.pipeline.inside = inside
	return inside, p.Within(stages[at]), nil
}

// setSpan makes these the layers of the rank. Sequences with other layers are dropped.
func (m *Model[C]) setSpan(layers parallel.Range) {
	if layers == m.span {
		return
	}
	m.dropAll()
	m.spans.Lock()
	defer m.spans.Unlock()
	m.span = layers
	m.network.SetSpan(layers)
}

// first and last report whether this is the first or the last stage.
func (p *pipeline) first() bool { return p.at == 0 }
func (p *pipeline) last() bool  { return p.at == len(p.stages)-1 }

// leads reports whether the rank sends and receives for its stage.
func (p *pipeline) leads() bool { return p.inside == nil || p.inside.Rank() == 0 }

// lead is the first rank of a stage.
func (p *pipeline) lead(stage int) int { return p.stages[stage].Ranks.Start }

// apart reports whether messages between stages may be under way while the stage computes: a
// group and a group split from it are used one at a time.
func (p *pipeline) apart() bool { return p.inside == nil }

// runStage runs this rank's stage of a step.
func (m *Model[C]) runStage(ctx context.Context, s *Step[C]) error {
	p, carried := m.pipeline, m.network.Carried()
	width := 0
	for _, c := range carried {
		width += c.Width
	}
	pieces := Pieces(s.Rows, len(p.stages), len(s.Wanted) > 0)
	p.kept, p.sum = p.kept[:0], 0
	room := (pieces[0].Len() + 1) * width
	for i := range min(2, len(pieces)) {
		if !p.first() {
			p.in[i] = slices.Grow(p.in[i][:0], room)
		}
		if !p.last() {
			p.out[i] = slices.Grow(p.out[i][:0], room)
		}
	}
	at := func(ends [2][]float32, k int) []float32 { return ends[k%2][:pieces[k].Len()*width] }
	for k, rows := range pieces {
		if !p.first() {
			if p.leads() && (k == 0 || !p.apart()) {
				if err := p.world.Recv(ctx, rowBytes(at(p.in, k)), p.lead(p.at-1)); err != nil {
					return fmt.Errorf("rows from stage %d: %w", p.at-1, err)
				}
			}
			if err := m.arrive(ctx, at(p.in, k), carried, rows.Len()); err != nil {
				return err
			}
		}
		messages := p.overlap(ctx, k, len(pieces), at)
		err := m.network.Layers(ctx, m.piece(s, rows))
		if messages != nil {
			if failed := messages.Wait(); err == nil && failed != nil {
				err = fmt.Errorf("rows between stages: %w", failed)
			}
		}
		if err != nil {
			return err
		}
		if p.last() {
			err = m.keep(s, rows)
		} else if err = m.leave(at(p.out, k), carried, rows.Len()); err == nil && p.leads() && (k == len(pieces)-1 || !p.apart()) {
			err = p.world.Send(ctx, rowBytes(at(p.out, k)), p.lead(p.at+1))
		}
		if err != nil {
			return fmt.Errorf("rows behind layer %d: %w", m.span.End-1, err)
		}
	}
	return m.finalRows(ctx, s)
}

// overlap begins what travels while piece k is computed: the piece before it to the next
// stage, and the piece after it from the stage before; nil if there is nothing.
func (p *pipeline) overlap(ctx context.Context, k, pieces int, at func([2][]float32, int) []float32) *distributed.Pending {
	if !p.leads() || !p.apart() {
		return nil
	}
	from, to := -1, -1
	var dst, src []byte
	if !p.first() && k+1 < pieces {
		from, dst = p.lead(p.at-1), rowBytes(at(p.in, k+1))
	}
	if !p.last() && k > 0 {
		to, src = p.lead(p.at+1), rowBytes(at(p.out, k-1))
	}
	if from < 0 && to < 0 {
		return nil
	}
	pending := p.world.StartMessages(ctx, dst, from, src, to)
	return &pending
}

// piece is some rows of a step as a step.
func (m *Model[C]) piece(s *Step[C], rows parallel.Range) Step[C] {
	n := rows.Len()
	part := Step[C]{Rows: n, Layers: s.Layers, Live: parallel.Range{End: n}, IDs: s.IDs[rows.Start:rows.End], Pos: s.Pos[rows.Start:rows.End]}
	for _, g := range s.Segments {
		if g, ok := g.Part(rows); ok {
			g.First -= rows.Start
			part.Segments = append(part.Segments, g)
			part.End = max(part.End, g.Pos+g.N)
		}
	}
	for _, i := range s.Wanted {
		if r := int(i); r >= rows.Start && r < rows.End {
			part.Wanted = append(part.Wanted, i-int32(rows.Start))
		}
	}
	part.divide(m.placement.Cut(n, m.leastRows()), m.rank)
	if part.Cut == nil {
		return part
	}
	if part.Kept = part.Wanted; !m.pipeline.last() {
		part.Kept = make([]int32, n)
		for i := range part.Kept {
			part.Kept[i] = int32(i)
		}
	}
	return part
}

// arrive gives all ranks of the stage the rows [n] of a piece, which the first has, and
// copies them to the network.
func (m *Model[C]) arrive(ctx context.Context, rows []float32, carried []Carried, n int) error {
	if err := m.o.Backend.Flush(); err != nil {
		return err
	}
	if inside := m.pipeline.inside; inside != nil {
		if err := inside.Broadcast(ctx, rowBytes(rows), 0); err != nil {
			return fmt.Errorf("rows in stage %d: %w", m.pipeline.at, err)
		}
	}
	for _, c := range carried {
		copy(c.Data[:n*c.Width], rows)
		rows = rows[n*c.Width:]
	}
	return nil
}

// leave copies the rows [n] of a piece from the network to where they are sent from.
func (m *Model[C]) leave(rows []float32, carried []Carried, n int) error {
	if err := m.o.Backend.Flush(); err != nil {
		return err
	}
	for _, c := range carried {
		if err := m.copyOut(rows[:n*c.Width], c.Data[:n*c.Width]); err != nil {
			return err
		}
		rows = rows[n*c.Width:]
	}
	return nil
}

// copyOut copies flushed memory of the backend.
func (m *Model[C]) copyOut(to, from []float32) error {
	if kernels.HostOf(m.o.Backend).SlowReads {
		return m.reader.Read(rowBytes(to), rowBytes(from))
	}
	copy(to, from)
	return nil
}

// keep keeps the final hidden states of the wanted rows of a piece.
func (m *Model[C]) keep(s *Step[C], rows parallel.Range) error {
	flushed := false
	for _, i := range s.Wanted {
		r := int(i)
		if r < rows.Start || r >= rows.End {
			continue
		}
		if !flushed {
			if err := m.o.Backend.Flush(); err != nil {
				return err
			}
			flushed = true
		}
		row, err := m.readable(m.network.Hidden(r - rows.Start))
		if err != nil {
			return err
		}
		m.pipeline.kept = append(m.pipeline.kept, row...)
	}
	return nil
}

// finalRows brings the final hidden states of the wanted rows from the last stage to the
// first.
func (m *Model[C]) finalRows(ctx context.Context, s *Step[C]) error {
	p, n := m.pipeline, len(s.Wanted)
	if n == 0 || !p.first() && !p.last() {
		return nil
	}
	if p.first() && !p.last() {
		width := len(m.network.Hidden(0))
		p.kept = slices.Grow(p.kept[:0], n*width)[:n*width]
		if p.leads() {
			if err := p.world.Recv(ctx, rowBytes(p.kept), p.lead(len(p.stages)-1)); err != nil {
				return fmt.Errorf("rows from the last stage: %w", err)
			}
		}
		if err := m.arrive(ctx, p.kept, nil, 0); err != nil {
			return err
		}
		for k, i := range s.Wanted {
			copy(m.network.Hidden(int(i)), p.kept[k*width:][:width])
		}
	} else if p.leads() {
		if err := p.world.Send(ctx, rowBytes(p.kept), 0); err != nil {
			return fmt.Errorf("rows to the first stage: %w", err)
		}
	}
	width := len(p.kept) / n
	for k := range n {
		p.sum = crc32.Update(p.sum, castagnoli, rowBytes(quietNaNs(p.kept[k*width:][:width])))
	}
	p.sum = max(p.sum, 1)
	return nil
}

// digest appends the checksums of a step: of the choices of experts in the layers of this
// stage, if it has several ranks, and of the final hidden states. 0 is for what the rank does
// not know.
func (p *pipeline) digest(to, chosen []uint32, layers int) []uint32 {
	for i := range layers {
		sum := uint32(0)
		if own := p.stages[p.at].Layers; i < len(chosen) && i >= own.Start && i < own.End {
			sum = max(chosen[i], 1)
		}
		to = append(to, sum)
	}
	return append(to, p.sum)
}
