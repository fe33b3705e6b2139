package deepseek41

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
)

// NewPlan computes the memory plan of a file opened with the given options. sequences is the
// largest number held at once. Errors are those of ReadConfig.
func NewPlan(f *gguf.File, o Options, sequences int) (decoder.Plan, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return decoder.Plan{}, err
	}
	if o.DraftFile != nil {
		return decoder.Plan{}, decoder.NoBlock(o.DraftFile)
	}
	o = o.Complete(c.Context)
	layers := map[int]int{} // by compression ratio
	for _, role := range c.Roles {
		layers[role.Ratio]++
	}
	types := func(name string) []gguf.Type { return decoder.LayerTypes(f, c.Layers, name) }
	shape := c.shape(c.Sizes(c.Experts, c.Vocab, c.SharedFF, types("attn_output_b.weight"), types("ffn_down_shexp.weight")))
	n := forward{Pass: hyper.Pass{Shape: &c.Shape}, c: &c}
	p := shape.NewPlan(o, sequences, n.StepBuffers, n.HeadBuffers)
	p.SetStages(n.Splits, n.Carried())
	p.Stairs = true
	p.Summary = fmt.Sprintf("%d layers (%d raw, %d of ratio 2, %d of ratio 1, %d with engram), %d experts, %d used, hidden size %d",
		c.Layers, layers[0], layers[2], layers[1], len(c.Engram.Layers), c.Experts, c.Used, c.Embd) + c.trunkRemark + decoder.SaysUnread(c.unreadKeys)
	caches := newFootprint(c.within(p.Span), o.Context, o.MaxTokens)
	p.Growth = caches.growth()
	p.Caches = []decoder.Row{
		{What: "window", Bytes: caches.raw, Note: "each sequence"},
		{What: "compressors", Bytes: caches.rings, Note: "each sequence, with its last token ids"},
		{What: "ratio 2", Bytes: caches.compressed(2, o.Context), Note: fmt.Sprintf("each sequence of %d tokens, grows with use", o.Context)},
		{What: "ratio 1", Bytes: caches.compressed(1, o.Context), Note: "likewise"},
	}
	p.GatheredRow, p.Working = gatheredRow(&c), working(&c, o.Context, o.MaxTokens)
	if c.Engram.exists() {
		p.TableNames, p.TableCache = []string{tableTensor}, rowCacheBytes
		for _, layer := range c.Engram.Layers {
			if layer < p.Span.Start || layer >= p.Span.End {
				continue
			}
			t, _ := f.Tensor(layerTensor(layer, tableTensor))
			p.TableReads += c.Engram.columns()
			p.TableReadBytes += int64(c.Engram.columns() * t.Type.RowBytes(int(t.Shape[0])))
		}
	}
	p.AddWeights(f, hyper.Divisions(), unread)
	return p, nil
}

// gatheredRow is the most bytes of a row that ranks which divide rows send at once: all that
// attention gathers, the choice of entries, or the collapsed streams.
func gatheredRow(c *Config) int64 {
	n := c.HeadDim + c.QRank
	if c.compressed() {
		n += 2 * c.HeadDim
	}
	return 4 * int64(max(n, c.IndexTopK, c.Embd))
}
