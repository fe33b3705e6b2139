package deepseek2

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
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
	sizes := sizesOf(&c, c.types(f, "attn_output.weight"), c.types(f, "ffn_down_shexp.weight"))
	routed, heads := expertShape(&c, sizes, maxTokens), headsShape(&c, sizes, maxTokens)
	alone, _ := heads.Bytes(o.Reduce, o.Wire, false)
	parts := denseParts(&c, sizes, c.types(f, "ffn_down.weight"))
	dense := denseShape(&c, parts, maxTokens)
	if parts > 0 {
		n, _ := dense.Bytes(o.Reduce, o.Wire, false)
		alone += n
	}
	rows, keys := sequenceBytes(&c, context, context)
	note := fmt.Sprintf("each sequence of %d tokens, grows with use", context)
	p := decoder.Plan{
		Name: c.Name, Layers: c.Layers, DenseLayers: c.Dense, Sizes: sizes, Reduce: o.Reduce, Wire: o.Wire, Vocab: c.Vocab, Used: c.Used,
		Summary:      c.summary(),
		ContextLimit: c.Context, Context: context, MaxTokens: maxTokens, Sequences: sequences,
		Scratch: scratchBytes(&c, maxTokens) + moe.ScratchBytes(routed, o.Reduce) + alone,
		Growth:  growthBytes(&c, context),
		Derived: c.derivedBytes(f),
		Caches:  []decoder.Row{{What: "latent rows", Bytes: rows, Note: note}},
		// What attention gathers, the residual stream, or what an indexer has chosen.
		GatheredRow: 4 * int64(max(c.rowDim()+max(c.QRank, c.Embd)+c.Index.Dim, c.Embd, c.Index.TopK)),
		Routed:      routed, Heads: heads, DenseFFN: dense, Working: working(&c, context, maxTokens),
	}
	if keys > 0 {
		p.Caches = append(p.Caches, decoder.Row{What: "index keys", Bytes: keys, Note: note})
	}
	p.AddWeights(f, divided(parts > 0), c.unread)
	return p, nil
}

// summary says in a few words what the layers are, and what of YaRN the file leaves open.
func (c *Config) summary() string {
	s := fmt.Sprintf("%d layers (%d dense), %d heads over latent rows of %d, %d experts, %d used", c.Layers, c.Dense, c.Heads, c.rowDim(), c.Experts, c.Used)
	if c.Groups > 1 {
		s += fmt.Sprintf(" of %d of %d groups", c.GroupsUsed, c.Groups)
	}
	s += c.Index.summary() + fmt.Sprintf(", hidden size %d", c.Embd)
	if c.YaRN.Factor != 1 && !c.Betas {
		s += fmt.Sprintf("; the file does not say YaRN's betas, taken as %g and %g", c.YaRN.BetaFast, c.YaRN.BetaSlow)
	}
	if c.Turn != 1 {
		s += fmt.Sprintf("; warning: the file has no rope.scaling.yarn_log_multiplier, so the rotation has magnitude %.4g as in transformers, where llama.cpp's differs; for a model of DeepSeek or Kimi give it with --override-kv", c.Turn)
	}
	return s
}

// derivedBytes is the memory of what load makes of attn_kv_b.
func (c *Config) derivedBytes(f *gguf.File) (n int64) {
	if !c.Merged {
		return 0
	}
	for _, t := range c.types(f, "attn_kv_b.weight") {
		n += decoder.Pages(int64(c.Heads) * int64(c.KVRank) * int64(transposedType(t).RowBytes(c.Nope)))
	}
	return n
}

// divided are the tensors of which a rank reads a part, by their names without the layer;
// dense says whether the dense FFN of the leading layers is divided.
func divided(dense bool) map[string]decoder.Division {
	heads := func(p parallel.Part) parallel.Range { return p.Heads }
	shared := func(p parallel.Part) parallel.Range { return p.Shared }
	by := map[string]decoder.Division{
		"attn_q.weight":         {Of: heads},
		"attn_q_b.weight":       {Of: heads},
		"attn_k_b.weight":       {Of: heads},
		"attn_v_b.weight":       {Of: heads},
		"attn_output.weight":    {Of: heads, Columns: true},
		"ffn_gate_shexp.weight": {Of: shared},
		"ffn_up_shexp.weight":   {Of: shared},
		"ffn_down_shexp.weight": {Of: shared, Columns: true},
		"output.weight":         {Of: func(p parallel.Part) parallel.Range { return p.Vocabulary }},
	}
	if dense {
		by["ffn_gate.weight"], by["ffn_up.weight"] = decoder.Division{Of: shared}, decoder.Division{Of: shared}
		by["ffn_down.weight"] = decoder.Division{Of: shared, Columns: true}
	}
	return by
}

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

// working is what the working buffers of the CPU kernels depend on, for steps of so
// many tokens of sequences up to a context.
func working(c *Config, context, rows int) cpu.Working {
	w := cpu.Working{
		Rows:   rows,
		Cols:   max(c.Embd, c.QRank, c.Heads*c.Value, c.SharedFF, c.DenseFF),
		Groups: c.Heads, GroupCols: max(c.Nope, c.KVRank),
		Experts: c.Experts, Used: c.Used, Embd: c.Embd, FF: c.ExpertFF,
		Heads: c.Heads, HeadDim: c.rowDim(), Attended: context,
		Row: max(2*(c.Experts+c.Groups), c.RotDim),
	}
	if x := &c.Index; x.chooses(context) {
		w.Attended, w.IndexHeads, w.IndexDim, w.IndexEntries = x.TopK, x.Heads, x.Dim, context
	}
	return w
}
