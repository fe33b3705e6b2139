package deepseek4

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/model/decoder"
	"ringmaster/moe"
)

// NewPlan computes the memory plan of a file. context and maxTokens are as in Options;
// sequences is the most that are held at once. Errors are those of ReadConfig.
func NewPlan(f *gguf.File, context, maxTokens, sequences int) (decoder.Plan, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return decoder.Plan{}, err
	}
	if maxTokens == 0 {
		maxTokens = decoder.DefaultMaxTokens
	}
	if context == 0 {
		context = c.Context
	}
	layers := map[int]int{} // by compression ratio
	for _, r := range c.Ratios {
		layers[r]++
	}
	sizes, routed := newFootprint(&c, context, maxTokens), expertShape(&c, maxTokens)
	p := decoder.Plan{
		Name: c.Name, Layers: c.Layers, Sizes: c.Sizes(), Vocab: c.Vocab, Used: c.Used,
		Summary: fmt.Sprintf("%d layers (%d raw, %d of ratio 4, %d of ratio 128), %d experts, %d used, hidden size %d",
			c.Layers, layers[0], layers[4], layers[128], c.Experts, c.Used, c.Embd),
		ContextLimit: c.Context, Context: context, MaxTokens: maxTokens, Sequences: sequences,
		Scratch: scratchBytes(&c, maxTokens) + moe.ScratchBytes(routed),
		Growth:  sizes.growth(),
		Caches: []decoder.Row{
			{What: "window", Bytes: sizes.raw, Note: "each sequence"},
			{What: "compressors", Bytes: sizes.rings, Note: "each sequence"},
			{What: "ratio 4", Bytes: sizes.compressed(4, context), Note: fmt.Sprintf("each sequence of %d tokens, grows with use", context)},
			{What: "ratio 128", Bytes: sizes.compressed(128, context), Note: "likewise"},
		},
		Routed: routed, Working: working(&c, context, maxTokens),
	}
	p.AddWeights(f)
	return p, nil
}
