package deepseek4

import (
	"context"
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
	"ringmaster/parallel"
)

// block is the forward pass of the block for multi-token prediction: each stream of a row
// joins that stream of the hidden state with the token's embedding, a layer of ratio 0
// follows, and the block collapses its streams with coefficients of its own where the
// file has them. It implements decoder.Block.
type block struct {
	forward
	input  decoder.BlockInput
	hidden []float32 // [T][S][D] the states that the rows continue
}

var _ decoder.Block[*cache] = (*block)(nil)

// block is the configuration of the block: that of a model of one layer of ratio 0, which
// chooses experts by score.
func (c *Config) block() *Config {
	n, last := *c, c.Layers-1
	n.Layers, n.HashLayers, n.Ratios = 1, 0, []int{0}
	n.ClampRouted, n.ClampShared = c.ClampRouted[last:], c.ClampShared[last:]
	return &n
}

// loadBlock finds all tensors of the block of a file for a model with the weights w. Its
// error is like that of load.
func loadBlock(f, own *gguf.File, b kernels.Backend, c *Config, w *weights) (*decoder.Architecture[*cache], error) {
	at, ok := decoder.FindBlock(f, c.Layers)
	if !ok {
		return nil, decoder.NoBlock(f)
	}
	l, n := &loader{decoder.NewLoader(f, b, aliases), b}, c.block()
	freqs, err := decoder.Freqs(b, c.RotDim, c.RopeBase, decoder.YaRN{Factor: 1})
	if err != nil {
		return nil, err
	}
	input := l.BlockInput(at, w.embd)
	of := &weights{embd: input.Embd, headHC: w.headHC, layers: []layer{l.layer(n, 0, at.Layer, freqs)}}
	of.outputNorm, of.output = l.BlockOutput(at, w.outputNorm, w.output)
	// A file without the layers has the block's coefficients in place of the model's.
	for _, prefix := range []string{at.Own + "hc_head", "output_hc"} {
		if _, has := l.Find(prefix + "_fn.weight"); has && (prefix != "output_hc" || f != own) {
			of.headHC = c.LoadConnection(l.Loader, prefix, c.Streams, 1)
			break
		}
	}
	l.RefuseUnusedOf(at, nil)
	if err := l.Err(); err != nil {
		return nil, err
	}
	return &decoder.Architecture[*cache]{
		Shape: n.shape(of.sizes(n)),
		Network: func(base decoder.Base) decoder.Pass[*cache] {
			return &block{forward: forward{Pass: hyper.Pass{Base: base, Shape: &n.Shape}, c: n, w: of, caches: newFootprint(n, base.Context, base.MaxTokens)}, input: input}
		},
	}, nil
}

// Input implements decoder.Block. Streams are carried as the layer leaves them, so both
// kinds are alike.
func (m *block) Input(row int, _ bool) []float32 {
	width := m.c.Streams * m.c.Embd
	return m.hidden[row*width:][:width]
}

// Reach implements decoder.Block.
func (m *block) Reach() int { return m.c.Window }

// StepBuffers lists the buffers of a step of t tokens, see decoder.Pass.
func (m *block) StepBuffers(t int) []decoder.Buffer {
	return append(m.forward.StepBuffers(t), decoder.Buffer{F32: &m.hidden, Len: t * m.c.Streams * m.c.Embd})
}

// Layers implements decoder.Network.
func (m *block) Layers(ctx context.Context, step step) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("step cancelled: %w", context.Cause(ctx))
	}
	m.enter(step)
	if len(step.Wanted) > 0 {
		step.Layers = parallel.Range{End: 1} // of the block, whose step has those of the model
		return m.layers(ctx, step)
	}
	l := &m.w.layers[0]
	m.Mix(&l.hcAttn, nil, m.Pre, m.Pre, l.attnNorm, step.Own)
	m.project(l, step, false, false)
	m.keys(l, 0, step)
	for _, g := range step.Segments {
		m.remember(l, &g.Cache.layers[0], g, storesAtOnce(step))
	}
	return nil
}

// enter encodes the streams of the rows in front of the layer, h [rows][S][D].
func (m *block) enter(step step) {
	b, c, in, n := m.Backend, m.c, &m.input, step.Rows
	size := n * c.Embd
	b.Embed(m.X, in.Embd, step.IDs)
	b.RMSNorm(m.X, m.X, in.TokenNorm, n, c.Embd, c.RMSEps)
	b.MatMul(m.X, n, kernels.Product{W: in.Token, Out: m.Y})
	b.RMSNorm(m.hidden, m.hidden, in.HiddenNorm, n*c.Streams, c.Embd, c.RMSEps)
	for i := range c.Streams { // working buffers hold the activations of no more rows than a step has
		b.MatMul(m.hidden[i*size:], n, kernels.Product{W: in.Hidden, Out: m.H[i*size:]})
	}
	b.HCInit(m.hidden, m.Y, n, c.Streams, c.Embd)
	b.Add(m.H, m.H, m.hidden, size*c.Streams)
}
