package gguf

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// vocabulary is a header the size of a DeepSeek V4 model's: 129,280 tokens with
// a type each, 127,741 merges, and 2,000 tensors with next to no data.
func vocabulary() []byte {
	var tokens, merges, types []byte
	for i := range 129280 {
		tokens = append(tokens, rawString(fmt.Sprintf("token%d", i))...)
		types = append(types, le(int32(1))...)
	}
	for i := range 127741 {
		merges = append(merges, rawString(fmt.Sprintf("left%d right%d", i, i))...)
	}
	r := newRaw().kv(keyArchitecture, kindString, rawString("deepseek4"))
	r.array("tokenizer.ggml.tokens", kindString, 129280, tokens)
	r.array("tokenizer.ggml.token_type", kindInt32, 129280, types)
	r.array("tokenizer.ggml.merges", kindString, 127741, merges)
	for i := range 2000 {
		r.tensor(fmt.Sprintf("blk.%d.ffn_gate_exps.weight", i), F32, uint64(32*i), 32, 8)
	}
	return r.bytes()
}

func TestVocabulary(t *testing.T) {
	data := vocabulary()
	f := open(t, write(t, "vocab.gguf", data))
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	require.Len(t, tokens, 129280)
	require.Equal(t, "token129279", tokens[129279])
	merges, _ := f.Strings("tokenizer.ggml.merges")
	require.Len(t, merges, 127741)
	require.Equal(t, "left0 right0", merges[0])
	types, _ := f.Ints("tokenizer.ggml.token_type")
	require.Len(t, types, 129280)
	require.Len(t, f.Tensors(), 2000)
}

func BenchmarkOpen(b *testing.B) {
	path := write(b, "vocab.gguf", vocabulary())
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		require.NoError(b, err)
		require.NoError(b, f.Close())
	}
}

func BenchmarkDequantize(b *testing.B) {
	for _, typ := range []Type{Q8_0, Q2_K, Q4_K, IQ2XXS, MXFP4} {
		b.Run(typ.String(), func(b *testing.B) {
			dst := make([]float32, 4096)
			src := splitmix(1, typ.RowBytes(len(dst)))
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				require.NoError(b, Dequantize(dst, typ, src))
			}
		})
	}
}
