// Package exact is a forward pass of the architectures deepseek2, deepseek32 and glm-dsa
// in float64, from the weights as the file has them, with activations that nothing
// rounds. It shares no code with kernels or model, because it judges ours and other
// engines alike. Keys and values of heads are computed (the form of the models' papers,
// where we and llama.cpp absorb them into the query).
//
// What an engine rounds can be switched on, and the experts and positions that it chose
// can be given, so that the reason of a difference can be told.
package exact

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/x448/float16"

	"ringmaster/gguf"
)

// Rounding is what an engine rounds; the zero value rounds nothing.
type Rounding struct {
	Cache       bool // cached rows are kept in float16
	Activations bool // activations that meet quantised weights have 8 bits, with a scale for 32 or (K-quants, IQ types) 256 of them
}

// Run is what became of a sequence.
type Run struct {
	Logits [][]float64 // [tokens][V]
	// Chosen are the experts of each token, ascending, by layer; of leading layers nil.
	Chosen [][][]int // [layers][tokens][used]
	// Read are the positions that each token reads, ascending, by layer; of layers without
	// an indexer nil.
	Read [][][]int // [layers][tokens][up to top k]
	// Regret is how far the given experts were from being chosen, at most. The choice is
	// right if the scores by which experts and groups are ranked are off by this much.
	Regret float64
	// ReadRegret is the same of the positions and the scores of the indexer.
	ReadRegret float64
}

// Forward runs token ids as one sequence. If given is not nil, layer and token choose its
// experts, with the weights that the router gives them, and read its positions. YaRN's
// betas are those of the file, or 32 and 1. Groups are ranked by the sum of their two
// best experts if scores are sigmoids, and by the best if they are a softmax.
func Forward(f *gguf.File, ids []int, rounding Rounding, given *Run) (run Run, err error) {
	m, err := open(f, rounding)
	if err != nil {
		return Run{}, err
	}
	defer func() {
		if fault := recover(); fault != nil { // a file that is not of this architecture
			err = fmt.Errorf("%s: %v", f.Path(), fault)
		}
	}()
	d := m.number("embedding_length")
	x := make([][]float64, len(ids))
	embd := m.tensor("token_embd.weight")
	for i, id := range ids {
		x[i] = embd.row(id)
	}
	for layer := range m.number("block_count") {
		p := fmt.Sprintf("blk.%d.", layer)
		var forced, read [][]int
		if given != nil {
			forced, read = given.Chosen[layer], given.Read[layer]
		}
		run.Read = append(run.Read, m.attention(layer, x, read))
		run.Chosen = append(run.Chosen, m.feedForward(p, x, forced))
	}
	run.Regret, run.ReadRegret = m.regret, m.readRegret
	h := m.norm("output_norm.weight", x, d)
	output := "output.weight"
	if _, own := f.Tensor(output); !own {
		output = "token_embd.weight"
	}
	run.Logits = m.product(m.tensor(output), h)
	return run, nil
}

type pass struct {
	f        *gguf.File
	rounding Rounding
	eps      float64
	freqs    []float64 // [rotated/2]
	turn     float64   // magnitude of cos and sin
	scale    float64
	regret   float64

	read       [][]int // by the last layer with an indexer; nil: everything
	readRegret float64
}

func open(f *gguf.File, rounding Rounding) (*pass, error) {
	if a := f.Architecture(); a != "deepseek2" && a != archV32 && a != archGLM {
		return nil, fmt.Errorf("%s: the float64 forward pass is of deepseek2, %s and %s, not of %q", f.Path(), archV32, archGLM, a)
	}
	m := &pass{f: f, rounding: rounding, eps: m64(f, "attention.layer_norm_rms_epsilon", 0), turn: 1}
	rot := m.number("rope.dimension_count")
	base, factor := m64(f, "rope.freq_base", 10000), m64(f, "rope.scaling.factor", 1)
	head, _ := m.head()
	m.scale = 1 / math.Sqrt(float64(head))
	for i := range rot / 2 {
		m.freqs = append(m.freqs, math.Pow(base, -2*float64(i)/float64(rot)))
	}
	if factor > 1 {
		n, original := float64(rot), m64(f, "rope.scaling.original_context_length", 0)
		turns := func(r float64) float64 { return n * math.Log(original/(2*math.Pi*r)) / (2 * math.Log(base)) }
		low := max(0, math.Floor(turns(m64(f, "rope.scaling.yarn_beta_fast", 32))))
		high := min(n-1, math.Ceil(turns(m64(f, "rope.scaling.yarn_beta_slow", 1))))
		for i := range m.freqs {
			ramp := min(1, max(0, (float64(i)-low)/max(0.001, high-low)))
			m.freqs[i] *= 1 - ramp + ramp/factor
		}
		const multiplier = "rope.scaling.yarn_log_multiplier"
		mscale := 1 + m64(f, multiplier, 0.1)*math.Log(factor)
		if f.Has(f.Architecture() + "." + multiplier) {
			m.scale *= mscale * mscale
		} else { // as transformers reads a configuration without mscale_all_dim
			m.turn = mscale
		}
	}
	return m, nil
}

func m64(f *gguf.File, key string, absent float64) float64 {
	if v, ok := f.Float(f.Architecture() + "." + key); ok {
		return v
	}
	return absent
}

// number is a whole number of the metadata, 0 if it is absent.
func (m *pass) number(key string) int {
	n, _ := m.f.Uint(m.f.Architecture() + "." + key)
	return int(n)
}

// head is the lengths of a head's key and value.
func (m *pass) head() (key, value int) {
	if key = m.number("attention.key_length_mla"); key != 0 {
		return key, m.number("attention.value_length_mla")
	}
	return m.number("attention.key_length"), m.number("attention.value_length")
}

// attention adds the attention of a layer to x [tokens][D] and returns the positions that
// an indexer of the layer lets tokens read, or given ones.
func (m *pass) attention(layer int, x [][]float64, given [][]int) (chosen [][]int) {
	p := fmt.Sprintf("blk.%d.", layer)
	heads, rank, rot := m.number("attention.head_count"), m.number("attention.kv_lora_rank"), m.number("rope.dimension_count")
	head, value := m.head()
	nope := head - rot
	h := m.norm(p+"attn_norm.weight", x, len(x[0]))
	var q [][]float64
	if direct, ok := m.f.Tensor(p + "attn_q.weight"); ok {
		q = m.product(matrix(direct), h)
	} else {
		low := m.product(m.tensor(p+"attn_q_a.weight"), h)
		low = m.norm(p+"attn_q_a_norm.weight", low, len(low[0]))
		q = m.product(m.tensor(p+"attn_q_b.weight"), low)
		if m.indexed(layer) {
			chosen = m.positions(p+"indexer.", h, low, given)
			m.read = chosen
		}
	}
	kv := m.product(m.tensor(p+"attn_kv_a_mqa.weight"), h)
	latent := m.norm(p+"attn_kv_a_norm.weight", kv, rank)
	for t := range x {
		m.rotate(kv[t][rank:], t, false)
		for i := range heads {
			m.rotate(q[t][i*head+nope:][:rot], t, false)
		}
		if m.rounding.Cache {
			half(latent[t])
			half(kv[t][rank:])
		}
	}
	out := make([][]float64, len(x))
	for t := range out {
		out[t] = make([]float64, heads*value)
	}
	keyOf, valueOf := m.keysAndValues(p, nope, value)
	for i := range heads {
		// keys [tokens][nope], values [tokens][value] of this head
		keys, values := m.product(keyOf(i), latent), m.product(valueOf(i), latent)
		for t := range x {
			query, seen := q[t][i*head:][:head], m.seen(t)
			scores := make([]float64, len(seen))
			for n, s := range seen {
				scores[n] = m.scale * (dot(query[:nope], keys[s]) + dot(query[nope:], kv[s][rank:]))
			}
			softmax(scores)
			for n, w := range scores {
				for j, v := range values[seen[n]] {
					out[t][i*value+j] += w * v
				}
			}
		}
	}
	add(x, m.product(m.tensor(p+"attn_output.weight"), out))
	return chosen
}

// keysAndValues are the matrices [nope][rank] and [value][rank] of a head.
func (m *pass) keysAndValues(p string, nope, value int) (keys, values func(head int) weight) {
	if both, ok := m.f.Tensor(p + "attn_kv_b.weight"); ok {
		w := matrix(both)
		return func(i int) weight { return w.rows(i*(nope+value), nope) },
			func(i int) weight { return w.rows(i*(nope+value)+nope, value) }
	}
	k, v := m.tensor(p+"attn_k_b.weight"), m.tensor(p+"attn_v_b.weight")
	rank := len(v.row(0))
	return func(i int) weight { return k.rows(i*rank, rank).transposed() },
		func(i int) weight { return v.rows(i*value, value) }
}

// feedForward adds the feed-forward network of a layer to x [tokens][D] and returns the
// experts of each token.
func (m *pass) feedForward(p string, x [][]float64, forced [][]int) [][]int {
	h := m.norm(p+"ffn_norm.weight", x, len(x[0]))
	if _, dense := m.f.Tensor(p + "ffn_gate.weight"); dense {
		add(x, m.network(m.tensor(p+"ffn_gate.weight"), m.tensor(p+"ffn_up.weight"), m.tensor(p+"ffn_down.weight"), h))
		return nil
	}
	chosen, weights := m.route(p, h, forced)
	gate, up, down := m.tensor(p+"ffn_gate_exps.weight"), m.tensor(p+"ffn_up_exps.weight"), m.tensor(p+"ffn_down_exps.weight")
	wide, d := m.number("expert_feed_forward_length"), len(x[0])
	for e := range m.number("expert_count") {
		var rows []int
		var in [][]float64
		for t := range h {
			if slices.Contains(chosen[t], e) {
				rows, in = append(rows, t), append(in, h[t])
			}
		}
		if len(rows) == 0 {
			continue
		}
		out := m.network(gate.rows(e*wide, wide), up.rows(e*wide, wide), down.rows(e*d, d), in)
		for i, t := range rows {
			w := weights[t][slices.Index(chosen[t], e)]
			for j, v := range out[i] {
				x[t][j] += w * v
			}
		}
	}
	if _, ok := m.f.Tensor(p + "ffn_gate_shexp.weight"); ok {
		add(x, m.network(m.tensor(p+"ffn_gate_shexp.weight"), m.tensor(p+"ffn_up_shexp.weight"), m.tensor(p+"ffn_down_shexp.weight"), h))
	}
	return chosen
}

// route chooses the experts of each row, ascending, and their weights.
func (m *pass) route(p string, h [][]float64, forced [][]int) (chosen [][]int, weights [][]float64) {
	used, groups := m.number("expert_used_count"), max(1, m.number("expert_group_count"))
	sigmoid := m.number("expert_gating_func") == 2 || m.f.Architecture() == archGLM && m.number("expert_gating_func") == 0
	norm, _ := m.f.Bool(m.f.Architecture() + ".expert_weights_norm")
	scale := cmp.Or(m64(m.f, "expert_weights_scale", 1), 1)
	bias, biased := m.f.Tensor(p + "exp_probs_b.bias")
	for t, scores := range m.product(m.tensor(p+"ffn_gate_inp.weight"), h) {
		if sigmoid {
			for e, v := range scores {
				scores[e] = 1 / (1 + math.Exp(-v))
			}
		} else {
			softmax(scores)
		}
		rank := slices.Clone(scores)
		if biased {
			for e, v := range matrix(bias).row(0) {
				rank[e] += v
			}
		}
		kept := m.number("expert_group_used_count")
		var best []int
		if forced == nil {
			best = choose(rank, groups, kept, used, sigmoid)
		} else {
			best = slices.Clone(forced[t])
			m.regret = max(m.regret, regret(rank, groups, kept, best, sigmoid))
		}
		slices.Sort(best)
		w, sum := make([]float64, len(best)), 0.0
		for i, e := range best {
			w[i] = scores[e]
			sum += w[i]
		}
		for i := range w {
			if norm {
				w[i] /= sum
			}
			w[i] *= scale
		}
		chosen, weights = append(chosen, best), append(weights, w)
	}
	return chosen, weights
}

// network is down(silu(gate h) * up h).
func (m *pass) network(gate, up, down weight, h [][]float64) [][]float64 {
	a, b := m.product(gate, h), m.product(up, h)
	for t := range a {
		for i, v := range a[t] {
			a[t][i] = v / (1 + math.Exp(-v)) * b[t][i]
		}
	}
	return m.product(down, a)
}

// norm is RMSNorm of the first n elements of each row.
func (m *pass) norm(name string, x [][]float64, n int) [][]float64 {
	w, out := m.tensor(name).row(0), make([][]float64, len(x))
	for t, row := range x {
		row = row[:n]
		scale := 1 / math.Sqrt(dot(row, row)/float64(n)+m.eps)
		out[t] = make([]float64, n)
		for i, v := range row {
			out[t][i] = v * scale * w[i]
		}
	}
	return out
}

// rotate turns the pairs of neighbours of x, or with halves those half of the rotated
// elements apart, by the angles of position t.
func (m *pass) rotate(x []float64, t int, halves bool) {
	for i, f := range m.freqs {
		first, second := 2*i, 2*i+1
		if halves {
			first, second = i, len(m.freqs)+i
		}
		sin, cos := math.Sincos(float64(t) * f)
		sin, cos = m.turn*sin, m.turn*cos
		a, b := x[first], x[second]
		x[first], x[second] = a*cos-b*sin, a*sin+b*cos
	}
}

func softmax(x []float64) {
	most, sum := slices.Max(x), 0.0
	for i, v := range x {
		x[i] = math.Exp(v - most)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

func add(x, y [][]float64) {
	for t := range x {
		for i, v := range y[t] {
			x[t][i] += v
		}
	}
}

func dot(a, b []float64) float64 {
	var s0, s1 float64
	for i := 0; i+1 < len(a); i += 2 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
	}
	if len(a)%2 == 1 {
		s0 += a[len(a)-1] * b[len(a)-1]
	}
	return s0 + s1
}

func half(x []float64) {
	for i, v := range x {
		x[i] = float64(float16.Fromfloat32(float32(v)).Float32())
	}
}
