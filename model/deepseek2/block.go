package deepseek2

import (
	"context"
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
)

// block is the forward pass of the block for multi-token prediction: the token's embedding
// and the normed hidden state together enter a layer with experts, in which a row attends
// to all rows before it. Its output after its norm is carried to the next token, as in
// llama.cpp and SGLang. It implements decoder.Block.
type block struct {
	forward
	input     decoder.BlockInput
	hidden    []float32 // [T][D] the states that the rows continue
	trunkNorm []float32 // [D] of the model's states
	carried   bool      // the rows of the next step continue states of the block
}

var _ decoder.Block[*cache] = (*block)(nil)

// block is the configuration of the block: that of a model of one layer with experts and
// without an indexer, as other programs run it.
func (c *Config) block() *Config {
	n := *c
	n.Layers, n.Dense, n.Index = 1, 0, Index{}
	return &n
}

// loadBlock finds all tensors of the block of a file for a model with the weights w. Its
// error is like that of load.
func loadBlock(f *gguf.File, b kernels.Backend, c *Config, w *weights) (*decoder.Architecture[*cache], error) {
	at, ok := decoder.FindBlock(f, c.Layers)
	if !ok {
		return nil, decoder.NoBlock(f)
	}
	l, n := decoder.NewLoader(f, b, aliases), c.block()
	if n.Merged = false; c.Merged {
		l.Fail("a block for multi-token prediction is not supported in the format of 2024, with attn_kv_b")
	}
	input := l.BlockInput(at, w.embd)
	of := &weights{embd: input.Embd, freqs: w.freqs, layers: []layer{loadLayer(l, n, 0, at.Layer)}}
	of.outputNorm, of.output = l.BlockOutput(at, w.outputNorm, w.output)
	l.RefuseUnusedOf(at, indexerTensors)
	if err := l.Err(); err != nil {
		return nil, err
	}
	sizes := of.sizes(n)
	return &decoder.Architecture[*cache]{
		Shape: n.shape(sizes, 0),
		Network: func(base decoder.Base) decoder.Pass[*cache] {
			return &block{forward: forward{Base: base, c: n, w: of}, input: input, trunkNorm: w.outputNorm}
		},
	}, nil
}

// Input implements decoder.Block.
func (m *block) Input(row int, carried bool) []float32 {
	m.carried = carried
	return m.hidden[row*m.c.Embd:][:m.c.Embd]
}

// Reach implements decoder.Block.
func (m *block) Reach() int { return 0 }

// StepBuffers lists the buffers of a step of t tokens, see decoder.Pass.
func (m *block) StepBuffers(t int) []decoder.Buffer {
	return append(m.forward.StepBuffers(t), decoder.Buffer{F32: &m.hidden, Len: t * m.c.Embd})
}

// Layers implements decoder.Network.
func (m *block) Layers(ctx context.Context, step step) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("step cancelled: %w", context.Cause(ctx))
	}
	m.enter(step)
	if len(step.Wanted) > 0 {
		return m.layer(ctx, 0, step)
	}
	l, s := &m.w.layers[0], &m.scratch
	m.Backend.RMSNorm(s.h, s.x, l.attnNorm, step.Rows, m.c.Embd, m.c.RMSEps)
	m.project(l, step, false, false)
	m.remember(l, 0, step)
	return nil
}

// enter encodes the rows in front of the layer, x [rows][D].
func (m *block) enter(step step) {
	b, c, s, in, n := m.Backend, m.c, &m.scratch, &m.input, step.Rows
	norm := m.trunkNorm
	if m.carried {
		norm = m.w.outputNorm
	}
	b.Embed(s.h, in.Embd, step.IDs)
	b.RMSNorm(s.h, s.h, in.TokenNorm, n, c.Embd, c.RMSEps)
	b.MatMul(s.h, n, kernels.Product{W: in.Token, Out: s.x})
	b.RMSNorm(m.hidden, m.hidden, norm, n, c.Embd, c.RMSEps)
	b.RMSNorm(m.hidden, m.hidden, in.HiddenNorm, n, c.Embd, c.RMSEps)
	b.MatMul(m.hidden, n, kernels.Product{W: in.Hidden, Out: s.y})
	b.Add(s.x, s.x, s.y, n*c.Embd)
}
