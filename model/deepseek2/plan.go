package deepseek2

import (
	"fmt"
	"strings"

	"ringmaster/gguf"
	"ringmaster/kernels/cpu"
	"ringmaster/model/decoder"
	"ringmaster/parallel"
)

// NewPlan computes the memory plan of a file opened with the given options. sequences is
// the largest number held at once. Errors are those of ReadConfig.
func NewPlan(f *gguf.File, o Options, sequences int) (decoder.Plan, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return decoder.Plan{}, err
	}
	o = o.Complete(c.Context)
	sizes := sizesOf(&c, c.types(f, "attn_output.weight"), c.types(f, "ffn_down_shexp.weight"))
	shape := c.shape(sizes, denseParts(&c, sizes, c.types(f, "ffn_down.weight")))
	n := forward{c: &c}
	p := shape.NewPlan(o, sequences, n.StepBuffers, n.HeadBuffers)
	p.SetStages(n.Splits, n.Carried())
	rows, keys := sequenceBytes(&c, o.Layers(c.Layers), o.Context, o.Context)
	note := fmt.Sprintf("each sequence of %d tokens, grows with use", o.Context)
	p.DenseLayers, p.Summary, p.Growth, p.Derived = c.Dense, c.summary(), growthBytes(&c, o.Context), c.derivedBytes(f)
	p.Caches = []decoder.Row{{What: "latent rows", Bytes: rows, Note: note}}
	// What attention gathers, the residual stream, or what an indexer has chosen.
	p.GatheredRow = 4 * int64(max(c.rowDim()+max(c.QRank, c.Embd)+c.Index.Dim, c.Embd, c.Index.TopK))
	p.Working = working(&c, o.Context, o.MaxTokens)
	if o.DraftFile != nil {
		at, ok := decoder.FindBlock(o.DraftFile, c.Layers)
		if !ok {
			return p, decoder.NoBlock(o.DraftFile)
		}
		n := block{forward: forward{c: c.block()}}
		p.AddBlock(f, o, at, n.c.shape(sizes, 0), n.StepBuffers, n.HeadBuffers, func(int) int64 {
			rows, _ := sequenceBytes(n.c, parallel.Range{End: 1}, o.Context, o.Context)
			return rows
		})
		p.Working.Attended = o.Context // the block reads all positions
	}
	if keys > 0 {
		p.Caches = append(p.Caches, decoder.Row{What: "index keys", Bytes: keys, Note: note})
	}
	p.AddWeights(f, decoder.Divisions([]string{"attn_q.weight", "attn_q_b.weight", "attn_k_b.weight", "attn_v_b.weight"},
		[]string{"attn_output.weight"}, shape.DenseParts > 0), c.unread)
	return p, nil
}

// summary says in a few words what the layers are, and what the file leaves open about
// YaRN.
func (c *Config) summary() string {
	s := fmt.Sprintf("%d layers (%d dense), %d heads over latent rows of %d, %d experts, %d used", c.Layers, c.Dense, c.Heads, c.rowDim(), c.Experts, c.Used)
	if c.Groups > 1 {
		s += fmt.Sprintf(" of %d of %d groups", c.GroupsUsed, c.Groups)
	}
	s += c.Index.summary() + fmt.Sprintf(", hidden size %d", c.Embd)
	if c.tied {
		s += "; the file has no output.weight, so the output is the embedding"
	}
	if len(c.supposed) > 0 {
		s += "; the file lacks " + strings.Join(c.supposed, ", ")
	}
	s += c.trunkRemark + decoder.SaysUnread(c.unreadKeys)
	if c.YaRN.Factor != 1 && !c.Betas {
		s += fmt.Sprintf("; the file lacks YaRN's betas (using %g and %g)", c.YaRN.BetaFast, c.YaRN.BetaSlow)
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

// types are the types of a tensor of each layer.
func (c *Config) types(f *gguf.File, name string) []gguf.Type {
	return decoder.LayerTypes(f, c.Layers, name)
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
