package gguf

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// splitmix fills n bytes from a splitmix64 stream.
func splitmix(seed uint64, n int) []byte {
	var out []byte
	for len(out) < n {
		seed += 0x9E3779B97F4A7C15
		z := seed
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		out = binary.LittleEndian.AppendUint64(out, z^z>>31)
	}
	return out[:n]
}

// floatBytes encodes x as little-endian float32.
func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// TestDequantizeMatchesGGML compares with the output of GGML itself, bit for
// bit.
func TestDequantizeMatchesGGML(t *testing.T) {
	file, err := os.Open("testdata/dequantize.txt")
	require.NoError(t, err)
	defer file.Close()
	seen := map[Type]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if fields[0] == "#" {
			continue
		}
		require.Len(t, fields, 9)
		number, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		typ := Type(number)
		seen[typ] = true
		t.Run(typ.String(), func(t *testing.T) {
			require.Equal(t, fields[0], strings.ToUpper(typ.String()))
			const blocks = 64
			size, elements := typ.BlockBytes(), typ.BlockElements()
			src := splitmix(uint64(typ), blocks*size)
			for _, field := range strings.Split(fields[2], ",") {
				if offset, err := strconv.Atoi(field); err == nil {
					for b := range blocks {
						src[b*size+offset] &^= 1 << 6
					}
				}
			}
			dst := make([]float32, blocks*elements)
			require.NoError(t, Dequantize(dst, typ, src))
			for i, at := range []int{0, 1, 2, elements - 2, elements - 1} {
				want, err := strconv.ParseFloat(fields[4+i], 32)
				require.NoError(t, err)
				require.Equal(t, float32(want), dst[at], "element %d", at)
			}
			sum := sha256.Sum256(floatBytes(dst))
			require.Equal(t, fields[3], hex.EncodeToString(sum[:]))
		})
	}
	for typ := range layouts {
		plain := typ == F32 || typ == F16 || typ == BF16 || !typ.Weights()
		require.True(t, seen[typ] || plain, "no golden values for %s", typ)
	}
}

// TestDequantizeByHand covers what random blocks exercise poorly: plain types,
// subnormal scales, special values.
func TestDequantizeByHand(t *testing.T) {
	inf := float32(math.Inf(1))
	block := func(head []byte, body ...byte) []byte { return append(head, body...) }
	for _, c := range []struct {
		name string
		typ  Type
		src  []byte
		want map[int]float32
	}{
		{"F32", F32, []byte{0, 0, 0xc0, 0x3f, 0, 0, 0x80, 0xff}, map[int]float32{0: 1.5, 1: -inf}},
		{"F16", F16, []byte{0, 0x3e, 1, 0, 0xff, 0x7b, 0, 0xfc}, map[int]float32{0: 1.5, 1: 0x1p-24, 2: 65504, 3: -inf}},
		{"BF16", BF16, []byte{0xc0, 0x3f, 0x80, 0x7f, 1, 0}, map[int]float32{0: 1.5, 1: inf, 2: 0x1p-133}},
		{"MXFP4 e=0", MXFP4, block([]byte{0}, splat(16, 0x71)...), map[int]float32{0: 0x1p-128, 15: 0x1p-128, 16: 12 * 0x1p-128}},
		{"MXFP4 e=1", MXFP4, block([]byte{1}, splat(16, 0x9f)...), map[int]float32{0: -12 * 0x1p-127, 31: -0x1p-127}},
		{"MXFP4 e=2", MXFP4, block([]byte{2}, splat(16, 0x21)...), map[int]float32{0: 0x1p-126, 16: 0x1p-125}},
		{"MXFP4 e=127", MXFP4, block([]byte{127}, splat(16, 0xa3)...), map[int]float32{0: 1.5, 16: -1}},
		{"MXFP4 e=254", MXFP4, block([]byte{254}, splat(16, 0x02)...), map[int]float32{0: 0x1p127, 16: 0}},
		// Scales 0, the NaN 127, the least subnormal, 0x38 = 1; quants 1/2 and 6.
		{"NVFP4 edges", NVFP4, block([]byte{0, 127, 1, 0x38}, splat(32, 0x71)...), map[int]float32{0: 0, 15: 0, 16: 0, 31: 0, 32: 0x1p-10, 40: 6 * 0x1p-9, 48: 0.5, 56: 6}},
		{"NVFP4 extremes", NVFP4, block([]byte{126, 7, 8, 0xff}, splat(32, 0xf7)...), map[int]float32{0: 2688, 8: -2688, 16: 42 * 0x1p-9, 24: -42 * 0x1p-9, 32: 6 * 0x1p-6, 48: 2880, 63: -2880}},
		{"NVFP4 highest bit", NVFP4, block([]byte{0x80, 0x81, 0xb8, 0xfe}, splat(32, 0x08)...), map[int]float32{0: 0, 8: 0, 16: 0}},
		{"NVFP4 order", NVFP4, block([]byte{0x38, 0x38, 0x38, 0x38}, 0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb, 0xed, 0x0f, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x30),
			map[int]float32{0: 0.5, 1: 1.5, 2: 3, 3: 6, 4: -0.5, 5: -1.5, 6: -3, 7: -6, 8: 1, 9: 2, 10: 4, 12: -1, 13: -2, 14: -4, 15: 0, 16: 1, 24: 0.5, 63: 1.5}},
		{"Q8_0 extremes", Q8_0, block([]byte{0, 0x38}, splat(32, 0x80)...), map[int]float32{0: -64, 31: -64}},
		{"Q8_0 infinite scale", Q8_0, block([]byte{0, 0x7c}, splat(32, 1)...), map[int]float32{0: inf}},
		{"Q4_0", Q4_0, block([]byte{0, 0x3c}, splat(16, 0xf0)...), map[int]float32{0: -8, 15: -8, 16: 7, 31: 7}},
		{"IQ4_NL", IQ4NL, block([]byte{0, 0x3c}, splat(16, 0xf0)...), map[int]float32{0: -127, 16: 113}},
		// d=1, grid entry 0 (all 8), scale nibble 0: 8*0.5/4; sign index 1 negates 0 and, by parity, 7.
		{"IQ2_XXS parity", IQ2XXS, block([]byte{0, 0x3c, 0, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 56)...), map[int]float32{0: -1, 1: 1, 6: 1, 7: -1, 8: 1}},
		// Index 0 is all -1; dl = 1; delta +0.125, in the second 32 -0.125.
		{"IQ1_S delta", IQ1S, block([]byte{0, 0x3c}, append(make([]byte, 32), append([]byte{0, 0, 0, 0x80}, make([]byte, 12)...)...)...),
			map[int]float32{0: -0.875, 31: -0.875, 32: -1.125, 64: -0.875}},
		// The float16 0x3c00 spread over the top nibbles; sub-scale 0 = 3 bits 001 gives 3.
		{"IQ1_M scale", IQ1M, block(make([]byte, 48), 1, 0, 0, 0, 0, 0xc0, 0, 0x30), map[int]float32{0: -2.625, 16: -0.875, 255: -0.875}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst := make([]float32, len(c.src)/c.typ.BlockBytes()*c.typ.BlockElements())
			require.NoError(t, Dequantize(dst, c.typ, c.src))
			for i, want := range c.want {
				require.Equal(t, want, dst[i], "element %d", i)
			}
		})
	}
	nan := make([]float32, 1)
	require.NoError(t, Dequantize(nan, F16, []byte{1, 0x7e}))
	require.True(t, math.IsNaN(float64(nan[0])))
}

func splat(n int, b byte) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = b
	}
	return out
}

// TestTables pins the grids by the hash of their layout in GGML's memory, and
// by the properties that define them.
func TestTables(t *testing.T) {
	hash := func(v any) string {
		h := sha256.New()
		require.NoError(t, binary.Write(h, binary.LittleEndian, v))
		return hex.EncodeToString(h.Sum(nil))
	}
	require.Equal(t, "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54", hash(IQ2XXSGrid))
	require.Equal(t, "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de", hash(IQ2XSGrid))
	require.Equal(t, "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88", hash(IQ2SGrid))
	require.Equal(t, "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d", hash(IQ3XXSGrid))
	require.Equal(t, "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f", hash(IQ3SGrid))
	require.Equal(t, "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a", hash(IQ1SGrid))
	require.Equal(t, []uint8{0, 129, 130, 3, 132, 5, 6, 135}, SignMasks[:8])
	require.Equal(t, uint8(255), SignMasks[127])

	distinct := map[uint64]bool{}
	for _, entry := range IQ1SGrid {
		distinct[entry] = true
	}
	require.Len(t, distinct, len(IQ1SGrid))
}

func TestDequantizeRefuses(t *testing.T) {
	for _, c := range []struct {
		dst, src int
		typ      Type
		want     string
	}{
		{1, 4, I32, "cannot dequantise I32"},
		{1, 1, Type(24), "cannot dequantise I8"},
		{31, 34, Q8_0, "31 elements of Q8_0: not whole blocks of 32"},
		{32, 33, Q8_0, "32 elements of Q8_0 need 34 bytes, got 33"},
		{32, 68, Q8_0, "32 elements of Q8_0 need 34 bytes, got 68"},
		{0, 34, Q8_0, "0 elements of Q8_0 need 0 bytes, got 34"},
	} {
		require.EqualError(t, Dequantize(make([]float32, c.dst), c.typ, make([]byte, c.src)), c.want)
	}
	require.NoError(t, Dequantize(nil, Q4_K, nil))
}

func FuzzDequantize(f *testing.F) {
	for _, typ := range slices.Sorted(maps.Keys(layouts)) {
		f.Add(uint32(typ), splitmix(uint64(typ), 2*typ.BlockBytes()))
	}
	f.Add(uint32(99), []byte("x"))
	f.Fuzz(func(t *testing.T, number uint32, src []byte) {
		typ := Type(number)
		if !typ.Known() {
			require.Error(t, Dequantize(nil, typ, src))
			return
		}
		blocks := len(src) / typ.BlockBytes()
		dst := make([]float32, blocks*typ.BlockElements())
		err := Dequantize(dst, typ, src)
		if !typ.Weights() || len(src)%typ.BlockBytes() != 0 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		// A block's values do not depend on its neighbours.
		if blocks > 0 {
			last := make([]float32, typ.BlockElements())
			require.NoError(t, Dequantize(last, typ, src[len(src)-typ.BlockBytes():]))
			require.Equal(t, floatBytes(last), floatBytes(dst[len(dst)-len(last):]))
		}
	})
}
