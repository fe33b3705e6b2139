package exact

import (
	"fmt"
	"math"
	"slices"

	"ringmaster/gguf"
)

// The architectures with an indexer.
const (
	archV32 = "deepseek32"
	archGLM = "glm-dsa"
)

// indexed reports whether a layer has an indexer: in V3.2 all do; in GLM those that the
// file lists, or all, or with a context of 2^20 the first three and each fourth after.
func (m *pass) indexed(layer int) bool { return indexed(m.f, layer) }

func indexed(f *gguf.File, layer int) bool {
	if full, ok := f.Bools(f.Architecture() + ".attention.indexer.types"); ok {
		return full[layer]
	}
	long, _ := f.Uint(f.Architecture() + ".context_length")
	switch f.Architecture() {
	case archV32:
		return true
	case archGLM:
		return long < 1<<20 || layer < 3 || (layer-2)%4 == 0
	}
	return false
}

// seen are the positions that token t attends to, ascending.
func (m *pass) seen(t int) []int {
	if m.read != nil {
		return m.read[t]
	}
	all := make([]int, t+1)
	for s := range all {
		all[s] = s
	}
	return all
}

// positions are those that each token reads by the indexer with tensors that begin with
// p: the given ones, or those with the largest scores of all up to its own. h [tokens][D]
// is the input of the attention, low its low-rank queries.
func (m *pass) positions(p string, h, low [][]float64, given [][]int) [][]int {
	heads, wide, count := m.number("attention.indexer.head_count"), m.number("attention.indexer.key_length"), m.number("attention.indexer.top_k")
	halves := m.f.Architecture() == archV32
	queries, weights := m.product(m.tensor(p+"attn_q_b.weight"), low), m.product(m.tensor(p+"proj.weight"), h)
	keys := m.layerNorm(p+"k_norm", m.product(m.tensor(p+"attn_k.weight"), h))
	chosen := make([][]int, len(h))
	for t := range h {
		m.rotate(keys[t], t, halves)
		keys[t] = hadamard(keys[t])
		if m.rounding.Cache {
			half(keys[t])
		}
		scores := make([]float64, t+1)
		for i := range heads {
			query := queries[t][i*wide:][:wide]
			m.rotate(query, t, halves)
			query = hadamard(query)
			for s := range scores {
				scores[s] += weights[t][i] * max(0, dot(query, keys[s])) / math.Sqrt(float64(heads)*float64(wide))
			}
		}
		if given == nil {
			chosen[t] = largest(scores, min(count, len(scores)))
			slices.Sort(chosen[t])
			continue
		}
		if chosen[t] = given[t]; len(given[t]) != min(count, t+1) {
			panic(fmt.Sprintf("%d positions are given for token %d", len(given[t]), t))
		}
		m.readRegret = max(m.readRegret, excess(scores,
			func(s int) bool { return slices.Contains(given[t], s) }, func(int) bool { return true }))
	}
	return chosen
}

// layerNorm takes the mean of each row away and divides by its standard deviation.
func (m *pass) layerNorm(name string, x [][]float64) [][]float64 {
	w, bias, out := m.tensor(name+".weight").row(0), m.tensor(name+".bias").row(0), make([][]float64, len(x))
	for t, row := range x {
		mean, square := 0.0, 0.0
		for _, v := range row {
			mean += v / float64(len(row))
		}
		for _, v := range row {
			square += (v - mean) * (v - mean) / float64(len(row))
		}
		out[t] = make([]float64, len(row))
		for i, v := range row {
			out[t][i] = (v-mean)/math.Sqrt(square+1e-6)*w[i] + bias[i]
		}
	}
	return out
}

// hadamard is the Walsh-Hadamard transform of x, halves by halves.
func hadamard(x []float64) []float64 {
	n := len(x) / 2
	if n == 0 {
		return x
	}
	sum, difference := make([]float64, n), make([]float64, n)
	for i := range n {
		sum[i], difference[i] = (x[i]+x[n+i])/math.Sqrt2, (x[i]-x[n+i])/math.Sqrt2
	}
	return append(hadamard(sum), hadamard(difference)...)
}
