package synthetic

import (
	"fmt"
	"strings"

	"ringmaster/gguf"
)

// A block for multi-token prediction behind the layers, in one of the forms that files
// have.
const (
	BlockJoined = "joined" // blk.N.nextn.eh_proj, for which the head's collapse is the model's
	BlockParts  = "parts"  // blk.N.nextn.e_proj and h_proj, with a collapse of its own; of deepseek4
	BlockAlone  = "alone"  // mtp.0.* without the model, which has the same seed and shape; of deepseek4
)

// Blocks lists the values of Config.Block.
func Blocks() []string { return []string{BlockJoined, BlockParts, BlockAlone} }

// checkBlock rejects forms that do not exist.
func (c *Config) checkBlock() error {
	switch {
	case c.Block == "" || c.Block == BlockJoined:
		return nil
	case c.Block != BlockParts && c.Block != BlockAlone:
		return fmt.Errorf("unknown form of a block for multi-token prediction %q: want %s, %s or %s", c.Block, BlockJoined, BlockParts, BlockAlone)
	case c.latent():
		return fmt.Errorf("files of %s have blocks for multi-token prediction as %s only, not as %s", c.Arch, BlockJoined, c.Block)
	}
	return nil
}

// blocks is how many blocks the model's file counts behind the layers.
func (c *Config) blocks() int {
	if c.Block == BlockJoined || c.Block == BlockParts {
		return 1
	}
	return 0
}

// beginning begins the names of the tensors of the block's layer; "nextn." follows in
// those of the rest.
func (c *Config) beginning() string { return fmt.Sprintf("blk.%d.", c.Layers) }

// aloneName is the name in a file of BlockAlone of what BlockParts names so.
func (c *Config) aloneName(name string) string {
	local := strings.TrimPrefix(strings.TrimPrefix(name, c.beginning()), "nextn.")
	return "mtp.0." + strings.TrimPrefix(local, "shared_head_")
}

// streamBlock adds the block of deepseek4: a layer of ratio 0 that chooses experts by
// score.
func (m *maker) streamBlock(small gguf.Type) {
	m.layer(max(m.c.Layers, m.c.HashLayers), 0, m.c.beginning(), small)
	m.block(small)
}

// latentBlock adds the block of the other architectures.
func (m *maker) latentBlock(depth float64) {
	p := m.c.beginning()
	m.latentAttention(p, depth)
	if m.c.sparse() {
		m.latentIndex(p)
	}
	m.mixture(m.c.Layers, p)
	m.block(m.c.Types.Aux)
}

// block adds the tensors of the block except those of its layer.
func (m *maker) block(small gguf.Type) {
	c := m.c
	E, dense, own := c.Embd, c.Types.Dense, c.beginning()+"nextn."
	m.vector(own+"enorm.weight", gguf.F32, normal(1, 0.1), E)
	m.vector(own+"hnorm.weight", gguf.F32, normal(1, 0.1), E)
	m.vector(own+"shared_head_norm.weight", gguf.F32, normal(1, 0.1), E)
	if c.Block == BlockJoined {
		m.matrix(own+"eh_proj.weight", dense, inv(2*E), 2*E, E)
		return
	}
	m.matrix(own+"e_proj.weight", dense, inv(2*E), E, E)
	m.matrix(own+"h_proj.weight", dense, inv(2*E), E, E)
	m.collapse(own+"hc_head", small)
}

// collapse adds the coefficients with which an output head collapses the streams.
func (m *maker) collapse(prefix string, small gguf.Type) {
	hc := m.c.Streams
	m.matrix(prefix+"_fn.weight", small, inv(hc*m.c.Embd), hc*m.c.Embd, hc)
	m.vector(prefix+"_base.weight", gguf.F32, normal(0, 0.5), hc)
	m.vector(prefix+"_scale.weight", gguf.F32, constant(0.7), 1)
}
