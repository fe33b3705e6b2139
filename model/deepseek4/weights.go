package deepseek4

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/moe"
)

// hyper holds the weights of one hyper-connection.
type hyper struct {
	fn    kernels.Weight // [(2+S)*S][S*D]; of the head [S][S*D]
	base  []float32      // [(2+S)*S]; of the head [S]
	scale []float32      // [3]; of the head [1]
}

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
	hcAttn  hyper
	hcFFN   hyper
	freqs   []float32 // [RotDim/2]
	overlap bool      // ratio 4

	attnNorm []float32      // [D]
	qA       kernels.Weight // [QRank][D]
	qANorm   []float32      // [QRank]
	qB       kernels.Weight // [H*hd][QRank]
	kv       kernels.Weight // [hd][D]
	kvNorm   []float32      // [hd]
	sinks    []float32      // [H]
	oA       kernels.Weight // [OGroups*ORank][H*hd/OGroups]
	oB       kernels.Weight // [D][OGroups*ORank]

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
	headHC     hyper
	layers     []layer
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

// loader finds tensors and checks their shapes and types; it collects all errors
// of the file.
type loader struct {
	f    *gguf.File
	b    kernels.Backend
	errs []error
}

func (l *loader) fail(format string, a ...any) {
	l.errs = append(l.errs, fmt.Errorf("%s: "+format, append([]any{l.f.Path()}, a...)...))
}

// find looks a tensor up by its name or one of its aliases.
func (l *loader) find(name string) (gguf.Tensor, bool) {
	if t, ok := l.f.Tensor(name); ok {
		return t, true
	}
	prefix, local := "", name
	if strings.HasPrefix(name, "blk.") {
		parts := strings.SplitN(name, ".", 3)
		prefix, local = parts[0]+"."+parts[1]+".", parts[2]
	}
	for _, a := range aliases[local] {
		if t, ok := l.f.Tensor(prefix + a); ok {
			return t, true
		}
	}
	return gguf.Tensor{}, false
}

// matrix is the tensor of slices matrices [rows][cols] (GGUF shape {cols,
// rows, slices}); matrices may also be joined into one of slices*rows rows.
func (l *loader) matrix(name string, cols, rows, slices int) kernels.Weight {
	t, ok := l.find(name)
	if !ok {
		l.fail("tensor %q is missing", name)
		return kernels.Weight{}
	}
	all := int64(1)
	for _, n := range t.Shape[1:] {
		all *= n
	}
	if t.Shape[0] != int64(cols) || all != int64(rows)*int64(slices) {
		l.fail("tensor %q has shape %v; expected %v", t.Name, t.Shape, []int{cols, rows, slices})
		return kernels.Weight{}
	}
	if !l.b.CanCompute(t.Type) {
		l.fail("tensor %q has type %s, which the %s backend cannot compute with; it can with %s",
			t.Name, t.Type, l.b.Name(), l.computable())
		return kernels.Weight{}
	}
	return kernels.Weight{Name: t.Name, Type: t.Type, Cols: cols, Rows: rows, Slices: slices,
		SliceBytes: rows * t.Type.RowBytes(cols), Data: t.Data}
}

// small is a matrix that is small and read by every token: its elements must be finite.
// The others are not checked here, because that would read the whole file (see
// gguf.CheckWeights).
func (l *loader) small(name string, cols, rows int) kernels.Weight {
	w := l.matrix(name, cols, rows, 1)
	if w.Exists() {
		t, _ := l.find(name)
		l.finite(t)
	}
	return w
}

// finite checks that all elements of a tensor are finite. One that is not would make
// every answer, or every answer that a router sends its way, fail.
func (l *loader) finite(t gguf.Tensor) {
	if err := t.CheckFinite(); err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", l.f.PathOf(t), err))
	}
}

// computable names the types of matrices that the backend can compute with.
func (l *loader) computable() string {
	var names []string
	for t := gguf.Type(0); t <= gguf.MXFP4; t++ {
		if t.Known() && l.b.CanCompute(t) {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}

// vector is a small tensor of n elements, all finite, as float32 in memory of the
// backend.
func (l *loader) vector(name string, n int) []float32 {
	t, ok := l.find(name)
	if !ok {
		l.fail("tensor %q is missing", name)
		return nil
	}
	all := int64(1)
	for _, m := range t.Shape {
		all *= m
	}
	if all != int64(n) {
		l.fail("tensor %q has shape %v; expected %d elements", t.Name, t.Shape, n)
		return nil
	}
	out, err := kernels.Make[float32](l.b, n)
	if err != nil {
		l.fail("tensor %q: %w", t.Name, err)
		return nil
	}
	if err := gguf.Dequantize(out, t.Type, t.Data); err != nil {
		l.fail("tensor %q: %w", t.Name, err)
	}
	l.finite(t)
	return out
}

// table is the I32 tensor [vocab][used] of experts by token id; all ids are
// checked to be below experts.
func (l *loader) table(name string, used, vocab, experts int) []int32 {
	t, ok := l.find(name)
	if !ok {
		l.fail("tensor %q is missing", name)
		return nil
	}
	if t.Type != gguf.I32 || len(t.Shape) != 2 || t.Shape[0] != int64(used) || t.Shape[1] != int64(vocab) {
		l.fail("tensor %q is %s of shape %v; expected I32 of %v", t.Name, t.Type, t.Shape, []int{used, vocab})
		return nil
	}
	ids := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(t.Data))), used*vocab)
	for i, id := range ids {
		if id < 0 || int(id) >= experts {
			l.fail("tensor %q: token %d names expert %d of %d", t.Name, i/used, id, experts)
			return nil
		}
	}
	return ids
}

func (l *loader) hyper(prefix string, outs, streams, embd, scales int) hyper {
	return hyper{
		fn:    l.small(prefix+"_fn.weight", streams*embd, outs),
		base:  l.vector(prefix+"_base.weight", outs),
		scale: l.vector(prefix+"_scale.weight", scales),
	}
}

func (l *loader) compressor(prefix string, embd, dim, ratio int) *compressor {
	width := dim
	if ratio == 4 {
		width = 2 * dim
	}
	return &compressor{
		kv:    l.matrix(prefix+"_kv.weight", embd, width, 1),
		gate:  l.matrix(prefix+"_gate.weight", embd, width, 1),
		ape:   l.small(prefix+"_ape.weight", width, ratio),
		norm:  l.vector(prefix+"_norm.weight", dim),
		dim:   dim,
		width: width,
	}
}

// experts is the routed experts and the shared one of layer i, whose tensor names begin with p.
func (l *loader) experts(c *Config, i int, p string) moe.Layer {
	e := moe.Layer{
		Router: l.small(p+"ffn_gate_inp.weight", c.Embd, c.Experts),
		Down:   l.matrix(p+"ffn_down_exps.weight", c.ExpertFF, c.Embd, c.Experts),
		Clamp:  c.ClampRouted[i], Norm: c.WeightsNorm, Scale: c.WeightsScale,
		SharedGate:  l.matrix(p+"ffn_gate_shexp.weight", c.Embd, c.SharedFF, 1),
		SharedUp:    l.matrix(p+"ffn_up_shexp.weight", c.Embd, c.SharedFF, 1),
		SharedDown:  l.matrix(p+"ffn_down_shexp.weight", c.SharedFF, c.Embd, 1),
		SharedClamp: c.ClampShared[i],
	}
	if i < c.HashLayers {
		e.Table = l.table(p+"ffn_gate_tid2eid.weight", c.Used, c.Vocab, c.Experts)
	} else {
		e.Bias = l.vector(p+"exp_probs_b.bias", c.Experts)
	}
	if _, merged := l.f.Tensor(p + "ffn_gate_up_exps.weight"); !merged {
		e.Gate = l.matrix(p+"ffn_gate_exps.weight", c.Embd, c.ExpertFF, c.Experts)
		e.Up = l.matrix(p+"ffn_up_exps.weight", c.Embd, c.ExpertFF, c.Experts)
		return e
	}
	// One tensor holds, for each expert, the rows of gate followed by those of up.
	both := l.matrix(p+"ffn_gate_up_exps.weight", c.Embd, 2*c.ExpertFF, c.Experts)
	if !both.Exists() {
		return e
	}
	both.Rows = c.ExpertFF
	e.Gate, e.Up = both, both
	e.Up.Data = both.Data[c.ExpertFF*both.RowBytes():]
	return e
}

// load finds all tensors of the model. Its error names each one that is missing,
// has the wrong shape, or has a type that the backend cannot compute with.
func load(f *gguf.File, b kernels.Backend, c *Config) (*weights, error) {
	l := &loader{f: f, b: b}
	d, s := c.Embd, c.Streams
	w := &weights{
		embd:       l.matrix("token_embd.weight", d, c.Vocab, 1),
		output:     l.matrix("output.weight", d, c.Vocab, 1),
		outputNorm: l.vector("output_norm.weight", d),
		headHC:     l.hyper("output_hc", s, s, d, 1),
		layers:     make([]layer, c.Layers),
	}
	plain, err := l.freqs(c.RotDim, c.RopeBase, YaRN{Factor: 1})
	if err != nil {
		return nil, err
	}
	scaled := plain
	if c.compressed() {
		if scaled, err = l.freqs(c.RotDim, c.CompressRopeBase, c.YaRN); err != nil {
			return nil, err
		}
	}
	for i := range w.layers {
		y := &w.layers[i]
		p := fmt.Sprintf("blk.%d.", i)
		y.ratio, y.overlap, y.freqs = c.Ratios[i], c.Ratios[i] == 4, plain
		if y.ratio > 0 {
			y.freqs = scaled
		}
		mix := (2 + s) * s
		y.hcAttn = l.hyper(p+"hc_attn", mix, s, d, 3)
		y.hcFFN = l.hyper(p+"hc_ffn", mix, s, d, 3)
		y.attnNorm = l.vector(p+"attn_norm.weight", d)
		y.qA = l.matrix(p+"attn_q_a.weight", d, c.QRank, 1)
		y.qANorm = l.vector(p+"attn_q_a_norm.weight", c.QRank)
		y.qB = l.matrix(p+"attn_q_b.weight", c.QRank, c.Heads*c.HeadDim, 1)
		y.kv = l.matrix(p+"attn_kv.weight", d, c.HeadDim, 1)
		y.kvNorm = l.vector(p+"attn_kv_a_norm.weight", c.HeadDim)
		y.sinks = l.vector(p+"attn_sinks.weight", c.Heads)
		y.oA = l.matrix(p+"attn_output_a.weight", c.Heads*c.HeadDim/c.OGroups, c.OGroups*c.ORank, 1)
		y.oB = l.matrix(p+"attn_output_b.weight", c.OGroups*c.ORank, d, 1)
		if y.ratio > 0 {
			y.comp = l.compressor(p+"attn_compressor", d, c.HeadDim, y.ratio)
		}
		if y.overlap {
			y.index = l.compressor(p+"indexer_compressor", d, c.IndexDim, y.ratio)
			y.indexQB = l.matrix(p+"indexer.attn_q_b.weight", c.QRank, c.IndexHeads*c.IndexDim, 1)
			y.indexProj = l.small(p+"indexer.proj.weight", d, c.IndexHeads)
		}
		y.ffnNorm = l.vector(p+"ffn_norm.weight", d)
		y.experts = l.experts(c, i, p)
	}
	return w, errors.Join(l.errs...)
}

// freqs puts the frequencies of ropeFreqs into memory of the backend.
func (l *loader) freqs(dim int, base float64, y YaRN) ([]float32, error) {
	f, err := kernels.Make[float32](l.b, dim/2)
	copy(f, ropeFreqs(dim, base, y))
	return f, err
}
