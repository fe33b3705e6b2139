package deepseek4

import (
	"context"
	"errors"
	"fmt"

	"ringmaster/kernels"
	"ringmaster/model"
)

// segment is one entry of a step: the rows [first, first+n) of the step's
// buffers are positions pos to pos+n-1 of a sequence.
type segment struct {
	seq           *sequence
	first, n, pos int
}

// Forward implements model.Model. Misuse of an op, which rehearse should have
// found, is an error.
func (m *Model) Forward(ctx context.Context, step model.Step) (logits [][]float32, err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		misuse, ok := v.(*kernels.Misuse)
		if !ok {
			panic(v)
		}
		logits, err = nil, m.abandon(misuse)
	}()
	m.digest = m.digest[:0]
	segments, rows, err := m.prepare(step)
	if err != nil {
		return nil, err
	}
	if rows == 0 {
		return nil, nil
	}
	b, c, s := m.b, &m.c, &m.scratch
	for i, e := range step.Entries {
		g := segments[i]
		copy(s.ids[g.first:], e.Tokens)
		for t := range g.n {
			s.pos[g.first+t] = int32(g.pos + t)
		}
	}
	m.routed.StartStep(len(m.w.layers))
	m.meter.StartStep()
	b.Embed(s.x, m.w.embd, s.ids[:rows])
	b.HCInit(s.h, s.x, rows, c.Streams, c.Embd)
	for i := range m.w.layers {
		if err := ctx.Err(); err != nil {
			return nil, m.abandon(fmt.Errorf("step cancelled before layer %d: %w", i, context.Cause(ctx)))
		}
		l := &m.w.layers[i]
		m.mix(&l.hcAttn, l.attnNorm, rows)
		m.attention(l, i, segments, rows)
		b.HCExpand(s.h, s.y, s.post, s.comb, rows, c.Streams, c.Embd)

		m.mix(&l.hcFFN, l.ffnNorm, rows)
		if err := m.feedForward(ctx, l, i, rows); err != nil {
			return nil, m.abandon(err)
		}
		b.HCExpand(s.h, s.y, s.post, s.comb, rows, c.Streams, c.Embd)
	}
	logits, err = m.head(step)
	if err == nil {
		m.digestStep(segments)
	}
	return logits, err
}

// abandon ends a step after err. It flushes the ops that are encoded, so that
// none of them uses memory after the step.
func (m *Model) abandon(err error) error {
	if ferr := m.b.Flush(); ferr != nil && !errors.Is(err, ferr) {
		err = fmt.Errorf("%w; then: %w", err, ferr)
	}
	return fmt.Errorf("deepseek4: %w", err)
}

// prepare checks a step and allocates what it needs. It returns a segment for each
// entry and the number of rows.
func (m *Model) prepare(step model.Step) ([]segment, int, error) {
	segments := make([]segment, 0, len(step.Entries))
	seen := make(map[model.SeqID]bool, len(step.Entries))
	rows := 0
	for _, e := range step.Entries {
		length, peak := 0, 0
		if q := m.sequences[e.Seq]; q != nil {
			length, peak = q.length, q.peak
		}
		end := e.Pos + len(e.Tokens)
		switch {
		case len(e.Tokens) == 0:
			return nil, 0, fmt.Errorf("deepseek4: sequence %d: entry without tokens", e.Seq)
		case seen[e.Seq]:
			return nil, 0, fmt.Errorf("deepseek4: sequence %d: twice in one step", e.Seq)
		case e.Pos < 0 || e.Pos > length:
			return nil, 0, fmt.Errorf("deepseek4: sequence %d: tokens at position %d, but it has %d", e.Seq, e.Pos, length)
		case peak-e.Pos > rewind && e.Pos > 0:
			return nil, 0, fmt.Errorf("deepseek4: sequence %d: rewind from %d to %d; at most %d positions are possible", e.Seq, peak, e.Pos, rewind)
		case end > m.contextLength:
			return nil, 0, fmt.Errorf("deepseek4: sequence %d: position %d is beyond the context of %d", e.Seq, end-1, m.contextLength)
		case rows+len(e.Tokens) > m.maxTokens:
			return nil, 0, fmt.Errorf("deepseek4: a step of more than %d tokens", m.maxTokens)
		}
		seen[e.Seq] = true
		for t, id := range e.Tokens {
			if id < 0 || int(id) >= m.c.Vocab {
				return nil, 0, fmt.Errorf("deepseek4: sequence %d: token %d at position %d; the vocabulary has %d", e.Seq, id, e.Pos+t, m.c.Vocab)
			}
		}
		segments = append(segments, segment{first: rows, n: len(e.Tokens), pos: e.Pos})
		rows += len(e.Tokens)
	}
	if err := m.makeRoom(step, segments); err != nil {
		return nil, 0, err
	}
	return segments, rows, nil
}

// makeRoom allocates what the step needs beyond the scratch memory: new sequences,
// room in KV caches, and the buffers of the output head. It sets segment.seq. The
// budget of the sequences is charged first, so that nothing is allocated beyond it.
// Errors wrap model.ErrNoMemory.
func (m *Model) makeRoom(step model.Step, segments []segment) error {
	for i, e := range step.Entries {
		if err := m.makeSequence(e.Seq, e.Pos+len(e.Tokens)); err != nil {
			return err
		}
		segments[i].seq = m.sequences[e.Seq]
	}
	n := len(wanted(step))
	if err := m.scratch.reserveHead(m.b, &m.c, n); err != nil {
		return fmt.Errorf("deepseek4: logits of %d tokens: %w: %w", n, model.ErrNoMemory, err)
	}
	return nil
}

// mix encodes the coefficients of a hyper-connection (pre, post, comb) and the
// normalised input of its sub-layer, x [rows][D].
func (m *Model) mix(hc *hyper, norm []float32, rows int) {
	c, s := &m.c, &m.scratch
	m.b.HCMix(kernels.HCMixArgs{
		H: s.h, Fn: hc.fn, Base: hc.base, Scale: hc.scale,
		Pre: s.pre, Post: s.post, Comb: s.comb,
		Rows: rows, Streams: c.Streams, Cols: c.Embd,
		Iterations: c.Sinkhorn, Eps: c.HCEps, RMSEps: c.RMSEps,
	})
	m.b.HCCollapse(s.x, s.h, s.pre, rows, c.Streams, c.Embd)
	m.b.RMSNorm(s.x, s.x, norm, rows, c.Embd, c.RMSEps)
}

// feedForward encodes the routed and the shared experts of x [rows][D] into y
// [rows][D]. The shared expert overlaps with the exchange between ranks.
func (m *Model) feedForward(ctx context.Context, l *layer, number, rows int) error {
	b, c, s := m.b, &m.c, &m.scratch
	if err := m.routed.Begin(ctx, number, &l.experts, s.x, s.ids, rows); err != nil {
		return err
	}
	b.MatMul(s.x, rows, kernels.Product{W: l.sharedGate, Out: s.gate}, kernels.Product{W: l.sharedUp, Out: s.up})
	b.SwiGLU(s.gate, s.gate, s.up, rows*c.SharedFF, l.sharedClamp)
	b.MatMul(s.gate, rows, kernels.Product{W: l.sharedDown, Out: s.shared})
	b.Submit()
	if err := m.routed.Finish(ctx, s.y); err != nil {
		return err
	}
	b.Add(s.y, s.y, s.shared, rows*c.Embd)
	return nil
}

// wanted is the rows of a step whose logits are wanted, ascending.
func wanted(step model.Step) []int32 {
	var wanted []int32
	first := 0
	for _, e := range step.Entries {
		switch e.Want {
		case model.WantAll:
			for t := range e.Tokens {
				wanted = append(wanted, int32(first+t))
			}
		case model.WantLast:
			wanted = append(wanted, int32(first+len(e.Tokens)-1))
		}
		first += len(e.Tokens)
	}
	return wanted
}

// head computes the wanted rows of logits [wanted][V], if any, and flushes.
func (m *Model) head(step model.Step) ([][]float32, error) {
	b, c, s := m.b, &m.c, &m.scratch
	rows := wanted(step)
	n := len(rows)
	if n > 0 {
		copy(s.rows, rows)
		b.Gather(s.picked, s.h, s.rows[:n], c.Streams*c.Embd)
		b.HCHead(kernels.HCHeadArgs{
			Out: s.headX, H: s.picked, Fn: m.w.headHC.fn, Base: m.w.headHC.base, Scale: m.w.headHC.scale,
			Rows: n, Streams: c.Streams, Cols: c.Embd, Eps: c.HCEps, RMSEps: c.RMSEps,
		})
		b.RMSNorm(s.headX, s.headX, m.w.outputNorm, n, c.Embd, c.RMSEps)
		b.MatMul(s.headX, n, kernels.Product{W: m.w.output, Out: s.logits})
	}
	if err := b.Flush(); err != nil {
		return nil, fmt.Errorf("deepseek4: %w", err)
	}
	out := make([][]float32, n)
	for i := range out {
		out[i] = s.logits[i*c.Vocab : (i+1)*c.Vocab : (i+1)*c.Vocab]
	}
	return out, nil
}
