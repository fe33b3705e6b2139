package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grown returns the true V3 vocabulary with further merges of its tokens, up to n tokens:
// as many as the vocabularies of GLM-4 and Kimi K2 have.
func grown(tb testing.TB, pre string, n int) *Tokenizer {
	base := golden(tb)
	v := Vocab{Model: "gpt2", Pre: pre, Tokens: append([]string{}, base.tokens...), Types: append([]Type{}, base.types...)}
	v.Merges = make([]string, len(base.merges))
	for p, m := range base.merges {
		v.Merges[m.rank] = base.tokens[p>>32] + " " + base.tokens[uint32(p)]
	}
	r := rand.New(rand.NewPCG(5, uint64(n)))
	known := map[string]bool{}
	for len(v.Tokens) < n {
		left, right := base.tokens[r.IntN(20_000)], base.tokens[r.IntN(20_000)]
		if _, old := base.ids[left+right]; old || known[left+right] || base.Added(base.ids[left]) || base.Added(base.ids[right]) {
			continue
		}
		known[left+right] = true
		v.Tokens, v.Types = append(v.Tokens, left+right), append(v.Types, Normal)
		v.Merges = append(v.Merges, left+" "+right)
	}
	tok, err := New(v)
	require.NoError(tb, err)
	return tok
}

// inTurns encodes the same prose with each of some vocabularies in turns and reports the
// time of each over that of the first by its name.
func inTurns(b *testing.B, names []string, toks []*Tokenizer) {
	text := prose(b, 1<<20)
	spent := make([]time.Duration, len(toks))
	b.SetBytes(int64(len(toks) * len(text)))
	for b.Loop() {
		for i, tok := range toks {
			begin := time.Now()
			tok.Encode(text, true)
			spent[i] += time.Since(begin)
		}
	}
	for i, name := range names[1:] {
		b.ReportMetric(float64(spent[i+1])/float64(spent[0]), "x("+name+")")
	}
}

// BenchmarkSize compares vocabularies of three sizes. All have the pre-tokenizer of V3, so
// that only the size differs.
func BenchmarkSize(b *testing.B) {
	var names []string
	var toks []*Tokenizer
	for _, n := range []int{129_280, 154_880, 163_840} {
		names, toks = append(names, fmt.Sprint(n)), append(toks, grown(b, "deepseek-v3", n))
	}
	inTurns(b, names, toks)
}

// BenchmarkPretokenizers compares the pre-tokenizers, with one vocabulary, to V3's.
func BenchmarkPretokenizers(b *testing.B) {
	pres := []string{"deepseek-v3", "deepseek-llm", "deepseek-coder", "glm4", "kimi-k2"}
	var toks []*Tokenizer
	for _, pre := range pres {
		toks = append(toks, grown(b, pre, 129_280))
	}
	inTurns(b, pres, toks)
}
