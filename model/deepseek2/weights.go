package deepseek2

import (
	"fmt"
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/model/decoder"
	"ringmaster/moe"
)

// layer holds the weights of one layer.
type layer struct {
	attnNorm []float32      // [D]
	q        kernels.Weight // [H*(Nope+RotDim)][D], if there is no low rank
	qA       kernels.Weight // [QRank][D], else
	qANorm   []float32      // [QRank]
	qB       kernels.Weight // [H*(Nope+RotDim)][QRank]
	latent   kernels.Weight // [R][D] the latent part of a cached row
	rotated  kernels.Weight // [RotDim][D] its rotated part
	kvNorm   []float32      // [R]
	kB       kernels.Weight // H x [R][Nope] from a head's query to the latent space
	vB       kernels.Weight // H x [Value][R] from there to its output
	out      kernels.Weight // [D][H*Value]
	index    *indexer       // nil for none

	ffnNorm        []float32      // [D]
	gate, up, down kernels.Weight // [DenseFF][D] twice, [D][DenseFF], of a leading layer
	experts        *moe.Layer     // of the others
}

// weights holds all weights of the model.
type weights struct {
	embd       kernels.Weight // [V][D]
	output     kernels.Weight // [V][D], may be embd
	outputNorm []float32      // [D]
	freqs      []float32      // [RotDim/2]
	layers     []layer
	tensors    []gguf.Tensor // all of them
}

// aliases are other names that files use for a tensor.
var aliases = map[string][]string{"exp_probs_b.bias": {"exp_probs_b.weight"}}

// unread are the tensors that a file may have and that this package does not read: see
// decoder.Unread.
func (c *Config) unread(layer int, name string) string {
	switch {
	case layer < 0:
	case name == "attn_kv_b.weight" && !c.Merged:
		return "attn_k_b and attn_v_b hold the same"
	case slices.Contains(indexerTensors, name) && c.Index.TopK > 0 && !c.Index.has(layer):
		return "layers that use the choice of another layer's indexer"
	}
	return ""
}

// loadLayer is layer i, with tensor names that begin with p. Its router has a bias if the
// file has one.
func loadLayer(l *decoder.Loader, c *Config, i int, p string) (y layer) {
	d, head := c.Embd, c.Nope+c.RotDim
	y.attnNorm = l.Vector(p+"attn_norm.weight", d)
	if c.QRank == 0 {
		y.q = l.Matrix(p+"attn_q.weight", d, c.Heads*head, 1)
	} else {
		y.qA = l.Matrix(p+"attn_q_a.weight", d, c.QRank, 1)
		y.qANorm = l.Vector(p+"attn_q_a_norm.weight", c.QRank)
		y.qB = l.Matrix(p+"attn_q_b.weight", c.QRank, c.Heads*head, 1)
	}
	if row := l.Matrix(p+"attn_kv_a_mqa.weight", d, c.rowDim(), 1); row.Exists() {
		y.latent, y.rotated = row.RowRange(0, c.KVRank), row.RowRange(c.KVRank, c.rowDim())
	}
	y.kvNorm = l.Vector(p+"attn_kv_a_norm.weight", c.KVRank)
	if !c.Merged {
		y.kB = l.Matrix(p+"attn_k_b.weight", c.Nope, c.KVRank, c.Heads)
		y.vB = l.Matrix(p+"attn_v_b.weight", c.KVRank, c.Value, c.Heads)
	} else if both := l.Matrix(p+"attn_kv_b.weight", c.KVRank, c.Nope+c.Value, c.Heads); both.Exists() {
		y.kB, y.vB = both.RowRange(0, c.Nope), both.RowRange(c.Nope, c.Nope+c.Value)
	}
	y.out = l.Matrix(p+"attn_output.weight", c.Heads*c.Value, d, 1)
	y.index = loadIndexer(l, c, i, p)
	y.ffnNorm = l.Vector(p+"ffn_norm.weight", d)
	if i < c.Dense {
		y.gate = l.Matrix(p+"ffn_gate.weight", d, c.DenseFF, 1)
		y.up = l.Matrix(p+"ffn_up.weight", d, c.DenseFF, 1)
		y.down = l.Matrix(p+"ffn_down.weight", c.DenseFF, d, 1)
		return y
	}
	e := l.Experts(p, moe.Shape{Embd: d, FF: c.ExpertFF, Experts: c.Experts, SharedFF: c.SharedFF})
	e.Score, e.Groups, e.GroupsUsed, e.GroupScore = c.Score, c.Groups, c.GroupsUsed, c.GroupScore
	e.Norm, e.Scale = c.WeightsNorm, c.WeightsScale
	if _, biased := l.Find(p + "exp_probs_b.bias"); biased {
		e.Bias = l.Vector(p+"exp_probs_b.bias", c.Experts)
	}
	y.experts = &e
	return y
}

// load finds all tensors of the model. Its error names each one that is missing, has the
// wrong shape, has a type that the backend cannot compute with, or is in a layer without
// a meaning that this package knows.
func load(f *gguf.File, b kernels.Backend, c *Config) (*weights, error) {
	l := decoder.NewLoader(f, b, aliases)
	d := c.Embd
	w := &weights{
		embd:       l.Embedding("token_embd.weight", d, c.Vocab),
		outputNorm: l.Vector("output_norm.weight", d),
		layers:     make([]layer, c.Layers),
	}
	w.output = w.embd
	if !c.tied {
		w.output = l.Matrix("output.weight", d, c.Vocab, 1)
	}
	var err error
	if w.freqs, err = decoder.Freqs(b, c.RotDim, c.RopeBase, c.YaRN); err != nil {
		return nil, err
	}
	var unbiased []string
	for i := range w.layers {
		p := fmt.Sprintf("blk.%d.", i)
		w.layers[i] = loadLayer(l, c, i, p)
		if _, biased := l.Find(p + "exp_probs_b.bias"); !biased && w.layers[i].experts != nil {
			unbiased = append(unbiased, p+"exp_probs_b.bias")
		}
	}
	if len(unbiased) < c.Layers-c.Dense { // all layers have biases of their router, or none
		for _, name := range unbiased {
			l.Missing(name)
		}
	}
	l.RefuseUnused(c.Layers, c.unread)
	w.tensors = l.Tensors
	if err := l.Err(); err != nil || !c.Merged {
		return w, err
	}
	for i := range w.layers {
		if w.layers[i].kB, err = transposeKeys(f, b, i, w.layers[i].kB); err != nil {
			return nil, err
		}
	}
	return w, nil
}
