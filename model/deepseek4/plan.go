package deepseek4

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
)

// NewPlan computes the memory plan of a file opened with the given options. sequences is
// the largest number held at once. Errors are those of ReadConfig.
func NewPlan(f *gguf.File, o Options, sequences int) (decoder.Plan, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return decoder.Plan{}, err
	}
	o = o.Complete(c.Context)
	layers := map[int]int{} // by compression ratio
	for _, r := range c.Ratios {
		layers[r]++
	}
	shape := c.shape(c.Sizes(c.Experts, c.Vocab, c.SharedFF, c.types(f, "attn_output_b.weight"), c.types(f, "ffn_down_shexp.weight")))
	n := forward{Pass: hyper.Pass{Shape: &c.Shape}, c: &c}
	p := shape.NewPlan(o, sequences, n.StepBuffers, n.HeadBuffers)
	p.SetStages(n.Splits, n.Carried())
	p.Summary = fmt.Sprintf("%d layers (%d raw, %d of ratio 4, %d of ratio 128), %d experts, %d used, hidden size %d",
		c.Layers, layers[0], layers[4], layers[128], c.Experts, c.Used, c.Embd) + c.remarks()
	caches := newFootprint(c.within(p.Span), o.Context, o.MaxTokens)
	p.Growth = caches.growth()
	p.Caches = []decoder.Row{
		{What: "window", Bytes: caches.raw, Note: "each sequence"},
		{What: "compressors", Bytes: caches.rings, Note: "each sequence"},
		{What: "ratio 4", Bytes: caches.compressed(4, o.Context), Note: fmt.Sprintf("each sequence of %d tokens, grows with use", o.Context)},
		{What: "ratio 128", Bytes: caches.compressed(128, o.Context), Note: "likewise"},
	}
	if o.DraftFile != nil {
		at, ok := decoder.FindBlock(o.DraftFile, c.Layers)
		if !ok {
			return p, decoder.NoBlock(o.DraftFile)
		}
		of := c.block()
		n := block{forward: forward{Pass: hyper.Pass{Shape: &of.Shape}, c: of}}
		p.AddBlock(f, o, at, n.c.shape(shape.Sizes), n.StepBuffers, n.HeadBuffers,
			func(rows int) int64 { return newFootprint(n.c, o.Context, rows).sequence(o.Context) })
	}
	p.GatheredRow, p.Working = gatheredRow(&c), working(&c, o.Context, o.MaxTokens)
	p.AddWeights(f, hyper.Divisions(), c.unread)
	return p, nil
}

// remarks say what is unusual about a file, for its summary.
func (c *Config) remarks() (s string) {
	if !c.clamped {
		s = "; warning: the file lacks swiglu_clamp_exp, so SwiGLU has no limit; for a released model give it with --override-kv deepseek4.swiglu_clamp_exp=float:10"
	}
	if c.compressed() && c.YaRN.Factor == 1 {
		s += "; warning: the file has no YaRN (rope.scaling), which released models have in compressed layers"
	}
	return s + c.trunkRemark + decoder.SaysUnread(c.unreadKeys)
}

// gatheredRow is the most bytes of a row that ranks which divide rows send at once: all
// that attention gathers, or the streams.
func gatheredRow(c *Config) int64 {
	n := c.HeadDim + c.QRank
	if c.compressed() {
		n += 2 * 2 * c.HeadDim
	}
	if c.indexed() {
		n += 2 * 2 * c.IndexDim
	}
	return 4 * int64(max(n, c.Streams*c.Embd))
}

// types are the types of a tensor of each layer.
func (c *Config) types(f *gguf.File, name string) []gguf.Type {
	return decoder.LayerTypes(f, c.Layers, name)
}
