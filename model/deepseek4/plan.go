package deepseek4

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/model/decoder"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// NewPlan computes the memory plan of a file opened with the given options; sequences
// is the most that are held at once. Errors are those of ReadConfig.
func NewPlan(f *gguf.File, o Options, sequences int) (decoder.Plan, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return decoder.Plan{}, err
	}
	maxTokens, context := o.MaxTokens, o.Context
	if maxTokens == 0 {
		maxTokens = decoder.DefaultMaxTokens
	}
	if context == 0 {
		context = c.Context
	}
	sizes := sizesOf(&c, c.types(f, "attn_output_b.weight"), c.types(f, "ffn_down_shexp.weight"))
	layers := map[int]int{} // by compression ratio
	for _, r := range c.Ratios {
		layers[r]++
	}
	caches, routed, heads := newFootprint(&c, context, maxTokens), expertShape(&c, sizes, maxTokens), headsShape(&c, sizes, maxTokens)
	alone, _ := heads.Bytes(o.Reduce, o.Wire, false)
	p := decoder.Plan{
		Name: c.Name, Layers: c.Layers, Sizes: sizes, Reduce: o.Reduce, Wire: o.Wire, Vocab: c.Vocab, Used: c.Used,
		Summary: fmt.Sprintf("%d layers (%d raw, %d of ratio 4, %d of ratio 128), %d experts, %d used, hidden size %d",
			c.Layers, layers[0], layers[4], layers[128], c.Experts, c.Used, c.Embd),
		ContextLimit: c.Context, Context: context, MaxTokens: maxTokens, Sequences: sequences,
		Scratch: scratchBytes(&c, maxTokens) + moe.ScratchBytes(routed, o.Reduce) + alone,
		Growth:  caches.growth(),
		Caches: []decoder.Row{
			{What: "window", Bytes: caches.raw, Note: "each sequence"},
			{What: "compressors", Bytes: caches.rings, Note: "each sequence"},
			{What: "ratio 4", Bytes: caches.compressed(4, context), Note: fmt.Sprintf("each sequence of %d tokens, grows with use", context)},
			{What: "ratio 128", Bytes: caches.compressed(128, context), Note: "likewise"},
		},
		GatheredRow: gatheredRow(&c), Routed: routed, Heads: heads, Working: working(&c, context, maxTokens),
	}
	p.AddWeights(f, divided, c.unread)
	return p, nil
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

// divided are the tensors of which a rank reads a part, by their names without the layer.
var divided = func() map[string]decoder.Division {
	heads := func(p parallel.Part) parallel.Range { return p.Heads }
	shared := func(p parallel.Part) parallel.Range { return p.Shared }
	return map[string]decoder.Division{
		"attn_q_b.weight":       {Of: heads},
		"attn_output_a.weight":  {Of: heads},
		"attn_output_b.weight":  {Of: heads, Columns: true},
		"ffn_gate_shexp.weight": {Of: shared},
		"ffn_up_shexp.weight":   {Of: shared},
		"ffn_down_shexp.weight": {Of: shared, Columns: true},
		"output.weight":         {Of: func(p parallel.Part) parallel.Range { return p.Vocabulary }},
	}
}()

// types are the types of a tensor of each layer; those of missing ones are left out.
func (c *Config) types(f *gguf.File, name string) []gguf.Type {
	var types []gguf.Type
	for i := range c.Layers {
		if t, ok := f.Tensor(fmt.Sprintf("blk.%d.%s", i, name)); ok {
			types = append(types, t.Type)
		}
	}
	return types
}
