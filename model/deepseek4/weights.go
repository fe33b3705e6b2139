package deepseek4

import (
	"fmt"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
	"ringmaster/moe"
)

// compressor holds the weights that turn a block of ratio tokens into one entry of
// the compressed KV cache.
type compressor struct {
	kv    kernels.Weight // [width][D]
	gate  kernels.Weight // [width][D]
	ape   kernels.Weight // [ratio][width] bias by position in the block
	norm  []float32      // [dim]
	dim   int            // width of an entry
	width int            // 2*dim with overlapping blocks, else dim
}

// layer holds the weights of one layer.
type layer struct {
	ratio   int
	hcAttn  hyper.Connection
	hcFFN   hyper.Connection
	freqs   []float32 // [RotDim/2]
	overlap bool      // ratio 4

	attnNorm []float32 // [D]
	attn     hyper.Attention

	comp      *compressor    // ratio > 0
	index     *compressor    // ratio 4
	indexQB   kernels.Weight // [IndexHeads*IndexDim][QRank]
	indexProj kernels.Weight // [IndexHeads][D]

	ffnNorm []float32 // [D]
	experts moe.Layer
}

// weights holds all weights of the model.
type weights struct {
	embd       kernels.Weight // [V][D]
	output     kernels.Weight // [V][D]
	outputNorm []float32      // [D]
	headHC     hyper.Connection
	layers     []layer
	tensors    []gguf.Tensor // all of them
}

// aliases are other names that files use for a tensor.
var aliases = map[string][]string{
	"attn_kv.weight":                 {"attn_kv_latent.weight", "attn_kv_a_mqa.weight"},
	"attn_compressor_kv.weight":      {"attn_compress_kv.weight"},
	"attn_compressor_gate.weight":    {"attn_compress_gate.weight"},
	"attn_compressor_ape.weight":     {"attn_compress_ape.weight"},
	"attn_compressor_norm.weight":    {"attn_compress_norm.weight"},
	"indexer_compressor_kv.weight":   {"indexer.compress_kv.weight"},
	"indexer_compressor_gate.weight": {"indexer.compress_gate.weight"},
	"indexer_compressor_ape.weight":  {"indexer.compress_ape.weight"},
	"indexer_compressor_norm.weight": {"indexer.compress_norm.weight"},
	"output_hc_fn.weight":            {"hc_head_fn.weight"},
	"output_hc_base.weight":          {"hc_head_base.weight"},
	"output_hc_scale.weight":         {"hc_head_scale.weight"},
	"exp_probs_b.bias":               {"exp_probs_b.weight"},
}

// unread are the tensors that a file may have and that this package does not read: see
// decoder.Unread.
func (c *Config) unread(layer int, name string) string {
	switch {
	case layer < 0:
	case name == "exp_probs_b_vl.bias":
		return "router biases for images"
	case layer < c.HashLayers && (name == "exp_probs_b.bias" || name == "exp_probs_b.weight"):
		return "layers that choose experts by token id"
	}
	return ""
}

// loader is decoder.Loader with this architecture's own kinds of tensors.
type loader struct {
	*decoder.Loader
	b kernels.Backend
}

// table is the I32 tensor [vocab][used] of experts by token id; all ids are
// checked to be below experts.
func (l *loader) table(name string, used, vocab, experts int) []int32 {
	t, ok := l.Find(name)
	if !ok {
		l.Missing(name)
		return nil
	}
	if t.Type != gguf.I32 || len(t.Shape) != 2 || t.Shape[0] != int64(used) || t.Shape[1] != int64(vocab) {
		l.Fail("tensor %q is %s of shape %v; expected I32 of %v", t.Name, t.Type, t.Shape, []int{used, vocab})
		return nil
	}
	ids := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(t.Data))), used*vocab)
	for i, id := range ids {
		if id < 0 || int(id) >= experts {
			l.Fail("tensor %q: token %d names expert %d of %d", t.Name, i/used, id, experts)
			return nil
		}
	}
	return ids
}

func (l *loader) compressor(prefix string, embd, dim, ratio int) *compressor {
	width := dim
	if ratio == 4 {
		width = 2 * dim
	}
	return &compressor{
		kv:    l.Matrix(prefix+"_kv.weight", embd, width, 1),
		gate:  l.Matrix(prefix+"_gate.weight", embd, width, 1),
		ape:   l.Small(prefix+"_ape.weight", width, ratio),
		norm:  l.Vector(prefix+"_norm.weight", dim),
		dim:   dim,
		width: width,
	}
}

// experts is the routed experts and the shared one of layer i; their tensor names begin
// with p.
func (l *loader) experts(c *Config, i int, p string) moe.Layer {
	e := l.Experts(p, moe.Shape{Embd: c.Embd, FF: c.ExpertFF, Experts: c.Experts, SharedFF: c.SharedFF})
	e.Clamp, e.SharedClamp, e.Norm, e.Scale = c.ClampRouted[i], c.ClampShared[i], c.WeightsNorm, c.WeightsScale
	if i < c.HashLayers {
		e.Table = l.table(p+"ffn_gate_tid2eid.weight", c.Used, c.Vocab, c.Experts)
	} else {
		e.Bias = l.Vector(p+"exp_probs_b.bias", c.Experts)
	}
	return e
}

// layer is layer i, with tensor names that begin with p.
func (l *loader) layer(c *Config, i int, p string, freqs []float32) layer {
	d := c.Embd
	y := layer{
		ratio: c.Ratios[i], overlap: c.Ratios[i] == 4, freqs: freqs,
		hcAttn:   c.LoadMix(l.Loader, p+"hc_attn"),
		hcFFN:    c.LoadMix(l.Loader, p+"hc_ffn"),
		attnNorm: l.Vector(p+"attn_norm.weight", d),
		attn:     c.LoadAttention(l.Loader, p),
	}
	if y.ratio > 0 {
		y.comp = l.compressor(p+"attn_compressor", d, c.HeadDim, y.ratio)
	}
	if y.overlap {
		y.index = l.compressor(p+"indexer_compressor", d, c.IndexDim, y.ratio)
		y.indexQB = l.Matrix(p+"indexer.attn_q_b.weight", c.QRank, c.IndexHeads*c.IndexDim, 1)
		y.indexProj = l.Small(p+"indexer.proj.weight", d, c.IndexHeads)
	}
	y.ffnNorm = l.Vector(p+"ffn_norm.weight", d)
	y.experts = l.experts(c, i, p)
	return y
}

// load finds all tensors of the model. Its error names each one that is missing,
// has the wrong shape, or has a type that the backend cannot compute with.
func load(f *gguf.File, b kernels.Backend, c *Config) (*weights, error) {
	l := &loader{decoder.NewLoader(f, b, aliases), b}
	d := c.Embd
	w := &weights{
		embd:       l.Embedding("token_embd.weight", d, c.Vocab),
		output:     l.Matrix("output.weight", d, c.Vocab, 1),
		outputNorm: l.Vector("output_norm.weight", d),
		headHC:     c.LoadConnection(l.Loader, "output_hc", c.Streams, 1),
		layers:     make([]layer, c.Layers),
	}
	plain, err := decoder.Freqs(b, c.RotDim, c.RopeBase, decoder.YaRN{Factor: 1})
	if err != nil {
		return nil, err
	}
	scaled := plain
	if c.compressed() {
		if scaled, err = decoder.Freqs(b, c.RotDim, c.CompressRopeBase, c.YaRN); err != nil {
			return nil, err
		}
	}
	for i := range w.layers {
		freqs := plain
		if c.Ratios[i] > 0 {
			freqs = scaled
		}
		w.layers[i] = l.layer(c, i, fmt.Sprintf("blk.%d.", i), freqs)
	}
	l.RefuseUnused(c.Layers, c.unread)
	w.tensors = l.Tensors
	return w, l.Err()
}
