package synthetic

import (
	"fmt"
	"io"
	"math"
	"strings"

	"ringmaster/gguf"
)

// aliases are alternative tensor names found in published files, by the part of
// the name after "blk.N.".
var aliases = strings.NewReplacer(
	"attn_kv.", "attn_kv_latent.",
	"attn_compressor_", "attn_compress_",
	"indexer_compressor_", "indexer.compress_",
	"output_hc_", "hc_head_",
	"exp_probs_b.bias", "exp_probs_b.weight",
)

// maker adds tensors to a file; it keeps the first error.
type maker struct {
	c   *Config
	w   *gguf.Writer
	err error
}

// chunk is how much of a tensor is made at a time: a multiple of every block.
const chunk = 1 << 18

// add adds a tensor. fill makes its bytes from the source of that name. A tensor renamed
// by an alias keeps the source of its usual name.
func (m *maker) add(name string, t gguf.Type, shape []int64, fill func(s source, w io.Writer) error) {
	if m.err != nil {
		return
	}
	var f func(io.Writer) error
	if fill != nil {
		f = func(w io.Writer) error { return fill(newSource(m.c.Seed, name), w) }
	}
	m.err = m.w.Add(m.name(name), t, shape, f)
}

// large is add for the tensors that c.Holes leaves empty.
func (m *maker) large(name string, t gguf.Type, shape []int64, fill func(s source, w io.Writer) error) {
	if m.c.Holes {
		fill = nil
	}
	m.add(name, t, shape, fill)
}

func (m *maker) name(name string) string {
	if m.c.Block == BlockAlone {
		return m.c.aloneName(name)
	}
	if m.c.Alias {
		return aliases.Replace(name)
	}
	return name
}

// gaussian writes n random blocks of type t.
func gaussian(s source, w io.Writer, t gguf.Type, blocks int64, std float64) error {
	size := t.BlockBytes()
	buf := make([]byte, min(blocks, chunk/int64(size))*int64(size))
	for left := blocks * int64(size); left > 0; left -= int64(len(buf)) {
		buf = buf[:min(left, int64(len(buf)))]
		if err := s.blocks(buf, t, std); err != nil {
			return err
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// matrix adds a large tensor of mean 0 and standard deviation std; shape is in
// GGUF's order.
func (m *maker) matrix(name string, t gguf.Type, std float64, shape ...int) {
	wide, elements := dims(shape)
	if single, ok := m.c.TensorTypes[name]; ok {
		t = single
	}
	if m.err == nil && !CanMake(t) {
		m.err = fmt.Errorf("tensor %q: cannot make random weights of type %s", name, t)
	}
	std *= m.scale(name, t)
	m.large(name, t, wide, func(s source, w io.Writer) error {
		return gaussian(s, w, t, elements/int64(t.BlockElements()), std)
	})
}

// dims is a shape in GGUF's integer width, and the number of its elements.
func dims(shape []int) (wide []int64, elements int64) {
	elements = 1
	for _, n := range shape {
		wide = append(wide, int64(n))
		elements *= int64(n)
	}
	return wide, elements
}

// vector adds a small tensor of type F32 or F16, which is made even when the
// large ones are holes. value draws element i.
func (m *maker) vector(name string, t gguf.Type, value func(s source, i int) float64, shape ...int) {
	if _, single := m.c.TensorTypes[name]; single {
		m.matrix(name, t, 1, shape...)
		return
	}
	wide, elements := dims(shape)
	m.add(name, t, wide, func(s source, w io.Writer) error {
		b := make([]byte, elements*int64(t.BlockBytes()))
		for i := range int(elements) {
			putFloat(b[i*t.BlockBytes():], t, value(s, i))
		}
		_, err := w.Write(b)
		return err
	})
}

// normal draws elements with the given mean and standard deviation.
func normal(middle, std float64) func(source, int) float64 {
	return func(s source, _ int) float64 { return middle + std*s.NormFloat64() }
}

// constant is for tensors that are all of one value.
func constant(v float64) func(source, int) float64 {
	return func(source, int) float64 { return v }
}

// table adds the experts of each token of a hash-routed layer, all distinct:
// I32 {used, vocab}.
func (m *maker) table(name string, used, vocab, experts int) {
	m.add(name, gguf.I32, []int64{int64(used), int64(vocab)}, func(s source, w io.Writer) error {
		ids := make([]int32, experts)
		for i := range ids {
			ids[i] = int32(i)
		}
		b := make([]byte, 0, 4*used*vocab)
		for range vocab {
			for i := range used { // the first steps of a shuffle
				j := i + s.IntN(experts-i)
				ids[i], ids[j] = ids[j], ids[i]
				b = appendInt32(b, ids[i])
			}
		}
		_, err := w.Write(b)
		return err
	})
}

// isFloat reports whether small tensors of the auxiliary kind may have the
// type.
func isFloat(t gguf.Type) bool { return t == gguf.F32 || t == gguf.F16 || t == gguf.BF16 }

// addTensors adds all tensors of the model. Standard deviations of 1/√inputs keep the
// variance; the gains of the experts make up for the reduction by silu and the weights.
func (c *Config) addTensors(w *gguf.Writer) error {
	m := &maker{c: c, w: w}
	if c.latent() {
		m.latentTensors()
		return m.err
	}
	// Never quantised, because llama.cpp reads these tensors as floats only.
	small := c.Types.Aux
	if small != gguf.F16 {
		small = gguf.F32
	}
	if c.Arch == archEngram {
		m.engramTensors(small)
		return m.err
	}
	if c.Block == BlockAlone {
		m.streamBlock(small)
		return m.err
	}
	E := c.Embd
	m.matrix("token_embd.weight", c.Types.Embd, 1, E, c.Vocab)
	m.matrix("output.weight", c.Types.Output, 3*inv(E), E, c.Vocab)
	m.vector("output_norm.weight", gguf.F32, normal(1, 0.1), E)
	m.collapse("output_hc", small)
	for i, ratio := range c.LayerRatios()[:c.Layers] {
		m.layer(i, ratio, fmt.Sprintf("blk.%d.", i), small)
	}
	if c.Block != "" {
		m.streamBlock(small)
	}
	return m.err
}

func inv(inputs int) float64 { return 1 / math.Sqrt(float64(inputs)) }

// window adds the tensors of attention over the window and of the hyper-connections.
func (m *maker) window(p string, small gguf.Type) {
	c := m.c
	E, H, D, Q, hc := c.Embd, c.Heads, c.HeadDim, c.QRank, c.Streams
	dense := c.Types.Dense
	m.vector(p+"attn_norm.weight", gguf.F32, normal(1, 0.1), E)
	m.vector(p+"attn_sinks.weight", gguf.F32, normal(0, 1), H)
	m.matrix(p+"attn_q_a.weight", dense, inv(E), E, Q)
	m.vector(p+"attn_q_a_norm.weight", gguf.F32, normal(1, 0.1), Q)
	m.matrix(p+"attn_q_b.weight", dense, inv(Q), Q, H*D)
	m.matrix(p+"attn_kv.weight", dense, inv(E), E, D)
	m.vector(p+"attn_kv_a_norm.weight", gguf.F32, normal(1.3, 0.13), D)
	group := H / c.OGroups * D
	m.matrix(p+"attn_output_a.weight", dense, inv(group), group, c.ORank*c.OGroups)
	m.matrix(p+"attn_output_b.weight", dense, inv(c.ORank*c.OGroups), c.ORank*c.OGroups, E)
	for _, what := range []string{"attn", "ffn"} {
		hyper := p + "hc_" + what
		mix := (2 + hc) * hc
		m.matrix(hyper+"_fn.weight", small, inv(hc*E), hc*E, mix)
		m.vector(hyper+"_base.weight", gguf.F32, func(s source, i int) float64 {
			v := 0.5 * s.NormFloat64()
			if k := i - 2*hc; k >= 0 && k/hc == k%hc {
				v += 2 // a stream mostly keeps its own content
			}
			return v
		}, mix)
		m.vector(hyper+"_scale.weight", gguf.F32, constant(0.7), 3)
	}
}

// layer adds layer i; its tensors' names begin with p.
func (m *maker) layer(i, ratio int, p string, small gguf.Type) {
	c := m.c
	E, Q, aux := c.Embd, c.QRank, c.Types.Aux
	m.window(p, small)
	if ratio > 0 {
		m.compressor(p+"attn_compressor_", ratio, c.HeadDim, 1.3, small)
	}
	if ratio == 4 {
		m.compressor(p+"indexer_compressor_", ratio, c.IndexDim, 1, small)
		m.matrix(p+"indexer.proj.weight", aux, inv(E), E, c.IndexHeads)
		m.matrix(p+"indexer.attn_q_b.weight", aux, inv(Q), Q, c.IndexHeads*c.IndexDim)
	}
	m.mixture(i, p)
}

// mixture adds the norm, the router, the routed experts and the shared expert of layer i.
func (m *maker) mixture(i int, p string) {
	c := m.c
	E := c.Embd
	m.vector(p+"ffn_norm.weight", gguf.F32, normal(1, 0.1), E)
	router := c.Types.Aux
	if !isFloat(router) {
		router = gguf.F32
	}
	m.matrix(p+"ffn_gate_inp.weight", router, 1.5*inv(E), E, c.Experts)
	switch {
	case i < c.HashLayers:
		m.table(p+"ffn_gate_tid2eid.weight", c.Used, c.Vocab, c.Experts)
	case !c.latent() || c.Latent.Bias != 0:
		m.vector(p+"exp_probs_b.bias", gguf.F32, normal(0, 0.1), c.Experts)
	}
	m.experts(i, p)
	if shared := c.FF * c.Shared; shared > 0 {
		const gain = 0.7
		m.matrix(p+"ffn_gate_shexp.weight", c.Types.Dense, gain*inv(E), E, shared)
		m.matrix(p+"ffn_up_shexp.weight", c.Types.Dense, gain*inv(E), E, shared)
		m.matrix(p+"ffn_down_shexp.weight", c.Types.Dense, gain*inv(shared), shared, E)
	}
}

// compressor adds the four tensors that compress blocks of tokens to entries of
// width dim; overlapping blocks (ratio 4) have two lanes.
func (m *maker) compressor(prefix string, ratio, dim int, middle float64, small gguf.Type) {
	wide := dim
	if ratio == 4 {
		wide *= 2
	}
	E := m.c.Embd
	m.matrix(prefix+"kv.weight", m.c.Types.Aux, inv(E), E, wide)
	m.matrix(prefix+"gate.weight", m.c.Types.Aux, inv(E), E, wide)
	m.vector(prefix+"ape.weight", small, normal(0, 0.5), wide, ratio)
	m.vector(prefix+"norm.weight", gguf.F32, normal(middle, 0.1*middle), dim)
}

// experts adds the routed experts of layer i.
func (m *maker) experts(i int, p string) {
	c := m.c
	E, F, n := c.Embd, c.FF, c.Experts
	of := func(by map[int]gguf.Type, all gguf.Type) gguf.Type {
		if t, ok := by[i]; ok {
			return t
		}
		return all
	}
	gate, up, down := of(c.LayerGate, c.Types.Gate), of(c.LayerUp, c.Types.Up), of(c.LayerDown, c.Types.Down)
	const gain = 0.7
	if c.Alias && gate == up && CanMake(gate) && E%gate.BlockElements() == 0 {
		m.gateUp(p, gate, gain*inv(E))
	} else {
		m.matrix(p+"ffn_gate_exps.weight", gate, gain*inv(E), E, F, n)
		m.matrix(p+"ffn_up_exps.weight", up, gain*inv(E), E, F, n)
	}
	m.matrix(p+"ffn_down_exps.weight", down, gain*inv(F), F, E, n)
}

// gateUp adds gate and up as one tensor {E, 2F, n}: for each expert the rows of
// gate, then those of up. They are the same rows as in separate tensors.
func (m *maker) gateUp(p string, t gguf.Type, std float64) {
	c := m.c
	shape := []int64{int64(c.Embd), 2 * int64(c.FF), int64(c.Experts)}
	blocks := int64(c.FF) * int64(c.Embd/t.BlockElements())
	m.large(p+"ffn_gate_up_exps.weight", t, shape, func(_ source, w io.Writer) error {
		gate, up := newSource(c.Seed, p+"ffn_gate_exps.weight"), newSource(c.Seed, p+"ffn_up_exps.weight")
		for range c.Experts {
			if err := gaussian(gate, w, t, blocks, std); err != nil {
				return err
			}
			if err := gaussian(up, w, t, blocks, std); err != nil {
				return err
			}
		}
		return nil
	})
}
