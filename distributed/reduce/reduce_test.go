package reduce

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/distributed"
)

func float16Bytes(values ...uint16) []byte {
	b := make([]byte, 0, 2*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

func float32Bytes(values ...float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// one reduces single elements given as bytes.
func one(op Op, dt distributed.DType, blocks ...[]byte) []byte {
	dst := make([]byte, len(blocks[0]))
	Reduce(op, dt, dst, blocks...)
	return dst
}

// sumFloat16 is the rule written out: a float32 sum in order, rounded once.
func sumFloat16(x ...uint16) uint16 {
	sum := float16.Frombits(x[0]).Float32()
	for _, v := range x[1:] {
		sum += float16.Frombits(v).Float32()
	}
	if sum != sum {
		return 0x7e00
	}
	return float16.Fromfloat32(sum).Bits()
}

func TestFloat16SumOfAllValues(t *testing.T) {
	others := []uint16{0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff, 0x1400, 0x0c01}
	a := make([]byte, 2*65536)
	for i := range 65536 {
		binary.LittleEndian.PutUint16(a[2*i:], uint16(i))
	}
	b := make([]byte, len(a))
	dst := make([]byte, len(a))
	for _, other := range others {
		for i := range 65536 {
			binary.LittleEndian.PutUint16(b[2*i:], other)
		}
		Reduce(Sum, distributed.Float16, dst, a, b)
		for i := range 65536 {
			if got, want := binary.LittleEndian.Uint16(dst[2*i:]), sumFloat16(uint16(i), other); got != want {
				t.Fatalf("%04x + %04x = %04x, want %04x", i, other, got, want)
			}
		}
	}
}

func TestFloat16SumIsRoundedOnce(t *testing.T) {
	// 2048 + 1 + 1: rounding after each addition would stay at 2048.
	x := float16Bytes(0x6800)
	u := float16Bytes(0x3c00)
	require.Equal(t, float16Bytes(0x6801), one(Sum, distributed.Float16, x, u, u))
	// 2048 + 1 is a tie and goes to the even one; 2050 + 1 goes up.
	require.Equal(t, float16Bytes(0x6800), one(Sum, distributed.Float16, x, u))
	require.Equal(t, float16Bytes(0x6802), one(Sum, distributed.Float16, float16Bytes(0x6801), u))
	// Temporarily beyond the range of float16.
	big := float16Bytes(0x7bff)
	require.Equal(t, big, one(Sum, distributed.Float16, big, big, float16Bytes(0xfbff)))
	require.Equal(t, float16Bytes(0x7c00), one(Sum, distributed.Float16, big, big))
}

func TestOrderOfBlocks(t *testing.T) {
	a, b, c := float32Bytes(1e30), float32Bytes(-1e30), float32Bytes(1)
	require.Equal(t, float32Bytes(1), one(Sum, distributed.Float32, a, b, c))
	require.Equal(t, float32Bytes(0), one(Sum, distributed.Float32, a, c, b))
}

func TestSmallTypes(t *testing.T) {
	d := distributed.Bool
	require.Equal(t, []byte{0, 1, 1, 1}, one(Sum, d, []byte{0, 2, 0, 4}, []byte{0, 0, 8, 4}))
	require.Equal(t, []byte{0, 1, 1, 1}, one(Max, d, []byte{0, 2, 0, 4}, []byte{0, 0, 8, 4}))
	require.Equal(t, []byte{0, 0, 0, 1}, one(Min, d, []byte{0, 2, 0, 4}, []byte{0, 0, 8, 8}))
	require.Equal(t, []byte{0x80, 0xff}, one(Sum, distributed.Int8, []byte{0x7f, 0xfe}, []byte{1, 1}), "wraps")
	require.Equal(t, []byte{0x7f, 1}, one(Max, distributed.Int8, []byte{0x7f, 0xfe}, []byte{0x80, 1}), "signed")
	require.Equal(t, []byte{0x80, 0xfe}, one(Max, distributed.Uint8, []byte{0x7f, 0xfe}, []byte{0x80, 1}), "unsigned")
	require.Equal(t, []byte{0x80, 0xfe}, one(Min, distributed.Int8, []byte{0x7f, 0xfe}, []byte{0x80, 1}))
	wide := binary.LittleEndian.AppendUint64(nil, math.MaxUint64)
	require.Equal(t, make([]byte, 8), one(Sum, distributed.Uint64, wide, binary.LittleEndian.AppendUint64(nil, 1)))
	neg := math.Float32frombits(1 << 31)
	require.Equal(t, float32Bytes(neg), one(Max, distributed.Float32, float32Bytes(neg), float32Bytes(0)), "the first of equal ones")
}

func TestNaN(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, nan := range []uint32{0x7f800001, 0xffc00000, 0x7fffffff} {
		bad := math.Float32frombits(nan)
		for _, op := range []Op{Sum, Max, Min} {
			for _, blocks := range [][][]byte{
				{float32Bytes(bad), float32Bytes(1), float32Bytes(-inf)},
				{float32Bytes(1), float32Bytes(bad), float32Bytes(inf)},
				{float32Bytes(-1), float32Bytes(inf), float32Bytes(bad)},
			} {
				got := one(op, distributed.Float32, blocks...)
				require.Equal(t, uint32(nanF32), binary.LittleEndian.Uint32(got), "%v", op)
			}
		}
	}
	require.Equal(t, uint32(nanF32), binary.LittleEndian.Uint32(one(Sum, distributed.Float32, float32Bytes(inf), float32Bytes(-inf))))
	require.Equal(t, float16Bytes(nanF16), one(Sum, distributed.Float16, float16Bytes(0x7c00), float16Bytes(0xfc00)))
	require.Equal(t, float16Bytes(nanBF16), one(Max, distributed.BFloat16, float16Bytes(0xff81), float16Bytes(0)))
	q := math.Float64frombits(0xfff8000000000001)
	require.Equal(t, uint64(nanF64), binary.LittleEndian.Uint64(one(Min, distributed.Float64,
		binary.LittleEndian.AppendUint64(nil, math.Float64bits(q)), make([]byte, 8))))
}

func TestBFloat16(t *testing.T) {
	// 256 + 1 is a tie (8 bits): to even, 256; twice 1 in float32 gives 258.
	require.Equal(t, float16Bytes(0x4380), one(Sum, distributed.BFloat16, float16Bytes(0x4380), float16Bytes(0x3f80)))
	require.Equal(t, float16Bytes(0x4381), one(Sum, distributed.BFloat16, float16Bytes(0x4380), float16Bytes(0x3f80), float16Bytes(0x3f80)))
	require.Equal(t, float16Bytes(0x7f80), one(Sum, distributed.BFloat16, float16Bytes(0x7f7f), float16Bytes(0x7f7f)))
}

func TestComplex64(t *testing.T) {
	d := distributed.Complex64
	a, b := float32Bytes(1, 5), float32Bytes(1, 7)
	require.Equal(t, float32Bytes(2, 12), one(Sum, d, a, b))
	require.Equal(t, b, one(Max, d, a, b))
	require.Equal(t, a, one(Min, d, a, b))
	require.Equal(t, float32Bytes(2, -9), one(Max, d, a, float32Bytes(2, -9)))
	nan := math.Float32frombits(nanF32)
	for _, blocks := range [][][]byte{{a, float32Bytes(0, nan)}, {float32Bytes(nan, 0), a}} {
		require.Equal(t, float32Bytes(nan, nan), one(Max, d, blocks...))
	}
	require.Equal(t, float32Bytes(nan, 5), one(Sum, d, a, float32Bytes(nan, 0)), "parts are added one by one")
}

// TestInPlaceAndUnaligned: dst may be any of the blocks, and nothing needs
// alignment; lengths around the sizes of vectors and tiles.
func TestInPlaceAndUnaligned(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for dt := distributed.Bool; dt <= distributed.Complex64; dt++ {
		for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 127, 128, 129, 511, 512, 513, 1500} {
			for _, k := range []int{2, 3, 8, 9} {
				size := n * dt.Size()
				blocks := make([][]byte, k)
				for i := range blocks {
					blocks[i] = make([]byte, size+i+1)[i+1:]
					for j := range blocks[i] {
						blocks[i][j] = byte(r.Uint32())
					}
				}
				for _, op := range []Op{Sum, Max, Min} {
					want := make([]byte, size)
					portable(op, dt, want, blocks)
					got := make([]byte, size+5)
					Reduce(op, dt, got[3:3+size], blocks...)
					require.Equal(t, want, got[3:3+size], "%v of %v, %d elements, %d blocks", op, dt, n, k)
					require.Equal(t, []byte{0, 0, 0, 0, 0}, append(got[:3:3], got[3+size:]...), "nothing beside dst")
					for i := range blocks {
						in := append([][]byte(nil), blocks...)
						in[i] = append([]byte(nil), blocks[i]...)
						Reduce(op, dt, in[i], in...)
						require.Equal(t, want, in[i], "%v of %v in place of block %d", op, dt, i)
					}
				}
			}
		}
	}
}

func TestOneBlockIsCopied(t *testing.T) {
	nan := float16Bytes(0x7c01)
	require.Equal(t, nan, one(Sum, distributed.Float16, nan))
	require.Equal(t, []byte{7}, one(Max, distributed.Bool, []byte{7}))
	Reduce(Sum, distributed.Float16, nil, nil, nil)
}

func TestMisuse(t *testing.T) {
	require.Panics(t, func() { Reduce(Sum, distributed.Float16, make([]byte, 3), make([]byte, 3)) })
	require.Panics(t, func() { Reduce(Sum, distributed.DType(14), make([]byte, 4), make([]byte, 4)) })
	require.Panics(t, func() { Reduce(Sum, distributed.Float32, make([]byte, 4)) })
	require.Panics(t, func() { Reduce(Sum, distributed.Float32, make([]byte, 4), make([]byte, 8)) })
	require.Panics(t, func() { Reduce(Op(3), distributed.Float32, make([]byte, 4), make([]byte, 4)) })
}

func TestNonFiniteFloat16(t *testing.T) {
	for h := range 65536 {
		want := h&0x7c00 == 0x7c00
		require.Equal(t, want, NonFiniteFloat16(float16Bytes(uint16(h))))
	}
	finite := make([]byte, 2*1200)
	for i := range 1200 {
		binary.LittleEndian.PutUint16(finite[2*i:], []uint16{0x7bff, 0xfbff, 0x8000, 0x03ff, 0x7800}[i%5])
	}
	for _, n := range []int{0, 1, 3, 16, 31, 32, 33, 255, 256, 257, 1000, 1200} {
		require.False(t, NonFiniteFloat16(finite[:2*n]))
		for i := range n {
			x := append(make([]byte, 1, 1+2*n), finite[:2*n]...)[1:]
			x[2*i+1] |= 0x7c
			require.True(t, NonFiniteFloat16(x), "%d of %d", i, n)
			require.True(t, nonFinitePortable(x), "%d of %d", i, n)
		}
	}
}

func BenchmarkSumFloat16(b *testing.B) {
	for _, k := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("blocks=%d", k), func(b *testing.B) {
			blocks := make([][]byte, k)
			for i := range blocks {
				blocks[i] = make([]byte, 16384)
			}
			b.SetBytes(16384)
			for b.Loop() {
				Reduce(Sum, distributed.Float16, blocks[0], blocks...)
			}
		})
	}
}

func BenchmarkNonFiniteFloat16(b *testing.B) {
	x := make([]byte, 16384)
	b.SetBytes(16384)
	for b.Loop() {
		NonFiniteFloat16(x)
	}
}
