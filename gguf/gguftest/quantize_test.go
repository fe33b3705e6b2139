package gguftest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
)

func TestQuantize(t *testing.T) {
	src := make([]float32, 64)
	for i := range src {
		src[i] = float32(i-20) / 8 // largest magnitude: 43/8 in the second block
	}
	src[0] = -127.0 / 8 // so that d of the first block is 1/8, q = 8x
	src[1] = 0.5 / 8    // a tie: away from zero
	src[2] = -1.5 / 8
	q := make([]byte, gguf.Q8_0.RowBytes(64))
	require.NoError(t, Quantize(q, gguf.Q8_0, src))
	require.Equal(t, []byte{0, 0x30, 0x81, 1, 0xfe, 0xef}, q[:6]) // 0x3000 is 1/8
	back := make([]float32, 64)
	require.NoError(t, gguf.Dequantize(back, gguf.Q8_0, q))
	for i := range src {
		require.InDelta(t, src[i], back[i], 0.5/8+1e-3, "element %d", i)
	}

	require.NoError(t, Quantize(q, gguf.Q8_0, make([]float32, 64)))
	require.Equal(t, make([]byte, 68), q)
	tiny := make([]float32, 64)
	tiny[3] = 1e-44
	require.NoError(t, Quantize(q, gguf.Q8_0, tiny))
	require.Equal(t, make([]byte, 68), q)

	b := make([]byte, 2)
	for _, c := range []struct {
		typ  gguf.Type
		x    float32
		want uint16
	}{
		{gguf.F16, 1.5, 0x3e00}, {gguf.F16, 1e9, 0x7c00}, {gguf.F16, 1 + 0x1p-11, 0x3c00}, {gguf.F16, 1 + 0x3p-11, 0x3c02},
		{gguf.BF16, 1.5, 0x3fc0}, {gguf.BF16, 1 + 0x1p-8, 0x3f80}, {gguf.BF16, 1 + 0x3p-8, 0x3f82},
		{gguf.BF16, math.MaxFloat32, 0x7f80}, {gguf.BF16, math.Float32frombits(0xff800001), 0xffc0},
	} {
		require.NoError(t, Quantize(b, c.typ, []float32{c.x}))
		require.Equal(t, c.want, binary.LittleEndian.Uint16(b), "%s of %v", c.typ, c.x)
	}
	f := make([]byte, 4)
	require.NoError(t, Quantize(f, gguf.F32, []float32{1.5}))
	require.Equal(t, []byte{0, 0, 0xc0, 0x3f}, f)

	bad := make([]float32, 32)
	for value, want := range map[float32]string{
		float32(math.Inf(1)): "Q8_0 block 0: element 5 is +Inf",
		9e6:                  "Q8_0 block 0: the scale of a largest value of 9e+06 is beyond the range of float16",
	} {
		bad[5] = value
		require.EqualError(t, Quantize(make([]byte, 34), gguf.Q8_0, bad), want)
	}
	require.ErrorContains(t, Quantize(nil, gguf.Q4_K, nil), "cannot quantise to Q4_K")
	require.ErrorContains(t, Quantize(make([]byte, 34), gguf.Q8_0, make([]float32, 31)), "not whole blocks")
	require.ErrorContains(t, Quantize(make([]byte, 33), gguf.Q8_0, make([]float32, 32)), "need 34 bytes, got room for 33")
}
