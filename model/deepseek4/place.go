package deepseek4

import (
	"ringmaster/gguf"
	"ringmaster/parallel"
)

// sizes is what a placement divides.
func (w *weights) sizes(c *Config) parallel.Sizes {
	oB, down := make([]gguf.Type, len(w.layers)), make([]gguf.Type, len(w.layers))
	for i := range w.layers {
		oB[i], down[i] = w.layers[i].attn.OB.Type, w.layers[i].experts.SharedDown.Type
	}
	return c.Sizes(c.Experts, c.Vocab, c.SharedFF, oB, down)
}
