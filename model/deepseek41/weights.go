package deepseek41

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/model/hyper"
	"ringmaster/moe"
	"ringmaster/parallel"
)

// source holds the weights that make compressed entries and their index keys.
type source struct {
	kv      kernels.Weight // [hd][D]
	gate    kernels.Weight // [hd][D]; ratio 2 only
	norm    []float32      // [hd]
	key     kernels.Weight // [IndexDim][hd]
	keyNorm []float32      // [IndexDim]
}

// index holds the weights that choose entries.
type index struct {
	qB   kernels.Weight // [IndexHeads*IndexDim][QRank]
	proj kernels.Weight // [IndexHeads][D]
}

// engram holds the weights of an engram layer, without its table.
type engram struct {
	kv      kernels.Weight // [(S+1)*D][values]
	hNorm   []float32      // [S][D]
	keyNorm []float32      // [S][D]
}

// layer holds the weights of one layer.
type layer struct {
	Role
	hcAttn hyper.Connection
	hcFFN  hyper.Connection
	freqs  []float32 // [RotDim/2]

	attnNorm []float32 // [D]
	attn     hyper.Attention
	source   *source // nil unless the layer makes entries
	index    *index  // nil unless it chooses
	engram   *engram // nil unless it has one

	ffnNorm []float32 // [D]
	experts moe.Layer
}

// weights holds all weights of the model but the tables.
type weights struct {
	embd       kernels.Weight // [V][D]
	output     kernels.Weight // [V][D]
	outputNorm []float32      // [D]
	layers     []layer
	tensors    []gguf.Tensor // all of them
}

// aliases are other names that files use for a tensor: those of ds4.
var aliases = map[string][]string{
	"engram_wkv.weight": {"engram_kv.weight"},
	"engram_q.weight":   {"engram_q_norm.weight"},
	"engram_k.weight":   {"engram_k_norm.weight"},
}

// tableTensor is a table's name within its layer.
const tableTensor = "engram_embd.weight"

// unread are the tensors that a file may have and that this package does not read: see
// decoder.Unread.
func unread(layer int, name string) string {
	if layer >= 0 && name == "exp_probs_b_vl.bias" {
		return "router biases for images"
	}
	return ""
}

// load finds all tensors of the model. Its error names each one that is missing, has the
// wrong shape, or has a type that the backend cannot compute with.
func load(f *gguf.File, b kernels.Backend, c *Config) (*weights, error) {
	l := decoder.NewLoader(f, b, aliases)
	d := c.Embd
	w := &weights{
		embd:       l.Embedding("token_embd.weight", d, c.Vocab),
		output:     l.Matrix("output.weight", d, c.Vocab, 1),
		outputNorm: l.Vector("output_norm.weight", d),
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
		y := &w.layers[i]
		p := fmt.Sprintf("blk.%d.", i)
		y.Role, y.freqs = c.Roles[i], plain
		if y.Ratio > 0 {
			y.freqs = scaled
		}
		y.hcAttn = c.LoadMix(l, p+"hc_attn")
		y.hcFFN = c.LoadMix(l, p+"hc_ffn")
		y.attnNorm = l.Vector(p+"attn_norm.weight", d)
		y.attn = c.LoadAttention(l, p)
		if y.Ratio > 0 && y.Source == i {
			y.source = c.loadSource(l, p, y.Ratio)
		}
		if y.Ratio > 0 && y.Index == i {
			y.index = &index{
				qB:   l.Matrix(p+"indexer.attn_q_b.weight", c.QRank, c.IndexHeads*c.IndexDim, 1),
				proj: l.Small(p+"indexer.proj.weight", d, c.IndexHeads),
			}
		}
		if y.Engram >= 0 {
			l.Table(p + tableTensor)
			y.engram = &engram{
				kv:      l.Matrix(p+"engram_wkv.weight", c.Engram.values(), (c.Streams+1)*d, 1),
				hNorm:   l.Vector(p+"engram_q.weight", c.Streams*d),
				keyNorm: l.Vector(p+"engram_k.weight", c.Streams*d),
			}
		}
		y.ffnNorm = l.Vector(p+"ffn_norm.weight", d)
		y.experts = l.Experts(p, moe.Shape{Embd: d, FF: c.ExpertFF, Experts: c.Experts, SharedFF: c.SharedFF})
		y.experts.Clamp, y.experts.SharedClamp = c.ClampRouted[i], c.ClampShared[i]
		y.experts.Norm, y.experts.Scale = c.WeightsNorm, c.WeightsScale
		y.experts.Bias = l.Vector(p+"exp_probs_b.bias", c.Experts)
	}
	l.RefuseUnused(c.Layers, unread)
	w.tensors = l.Tensors
	return w, l.Err()
}

func (c *Config) loadSource(l *decoder.Loader, p string, ratio int) *source {
	s := &source{
		kv:      l.Matrix(p+"attn_compressor_kv.weight", c.Embd, c.HeadDim, 1),
		norm:    l.Vector(p+"attn_compressor_norm.weight", c.HeadDim),
		key:     l.Matrix(p+"indexer.attn_k.weight", c.HeadDim, c.IndexDim, 1),
		keyNorm: l.Vector(p+"indexer.k_norm.weight", c.IndexDim),
	}
	if ratio > 1 {
		s.gate = l.Matrix(p+"attn_compressor_gate.weight", c.Embd, c.HeadDim, 1)
	}
	return s
}

// sizes is what a placement divides.
func (w *weights) sizes(c *Config) parallel.Sizes {
	oB, down := make([]gguf.Type, len(w.layers)), make([]gguf.Type, len(w.layers))
	for i := range w.layers {
		oB[i], down[i] = w.layers[i].attn.OB.Type, w.layers[i].experts.SharedDown.Type
	}
	return c.Sizes(c.Experts, c.Vocab, c.SharedFF, oB, down)
}
