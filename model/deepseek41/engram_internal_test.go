package deepseek41

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
)

// trueEngram is the constants of DeepSeek V4.1 Flash, made by the rule that its primes follow.
func trueEngram() *Engram {
	e := &Engram{Layers: []int{1, 14}, Gram: 4, Heads: 8, Width: 256, Pad: 2, Multipliers: []uint64{
		76632096046245, 4839876093313, 35959672319349, 73987337458391,
		67716810739261, 51510806800915, 30921347202721, 82619226485591,
	}}
	used := map[uint64]bool{}
	for range e.Layers {
		at := uint64(0)
		for range e.Gram - 1 {
			p := uint64(16000000 - 1)
			for range e.Heads {
				for p++; used[p] || !prime(p); p++ {
				}
				used[p] = true
				e.Primes, e.Offsets = append(e.Primes, p), append(e.Offsets, at)
				at += p
			}
		}
	}
	return e
}

func prime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// TestHash: the rows of given tokens, from the published rule and constants.
func TestHash(t *testing.T) {
	e := trueEngram()
	require.Equal(t, uint64(384006168), e.rows(0))
	require.Equal(t, uint64(384016682), e.rows(1))
	require.Equal(t, []uint64{16000057, 16000079, 16000081}, e.Primes[:3])
	require.Equal(t, uint64(16000463), e.Primes[23])
	require.Equal(t, uint64(16000477), e.Primes[24])
	require.Equal(t, uint64(16000889), e.Primes[47])
	rows := make([]uint64, e.columns())
	at := func(numbers ...int) (some []uint64) {
		for _, j := range numbers {
			some = append(some, rows[j])
		}
		return some
	}
	e.hash(rows, 0, []uint64{11, 9, 7, 5})
	require.Equal(t, []uint64{13176822, 30752650, 138863141, 149049926, 365279449, 376308748}, at(0, 1, 8, 9, 22, 23))
	e.hash(rows, 1, []uint64{11, 9, 7, 5})
	require.Equal(t, []uint64{12296247, 27973265, 134824779, 146341074, 361677462, 382399531}, at(0, 1, 8, 9, 22, 23))
	e.hash(rows, 0, []uint64{11, e.Pad, e.Pad, e.Pad}) // the first token of a sequence
	require.Equal(t, []uint64{5935489, 27383162, 376233586}, at(0, 1, 23))
}

// TestRowsOfE4M3: the codes at both ends, subnormal, of either sign, and NaN, which is
// refused.
func TestRowsOfE4M3(t *testing.T) {
	row, dst := make([]byte, 264), make([]float32, 256)
	for i := range 8 {
		row[256+i] = 127 // 2^0
	}
	row[262] = 130 // 2^3 of values 192 to 223
	for at, code := range map[int]byte{0: 0x00, 1: 0x80, 2: 0x01, 3: 0x7e, 4: 0xfe, 5: 0x38, 6: 0x08, 200: 0x39} {
		row[at] = code
	}
	require.NoError(t, decodeRow(dst, encodingE4M3, gguf.I8, row))
	require.Equal(t, []float32{0, float32(math.Copysign(0, -1)), 1.0 / 512, 448, -448, 1, 1.0 / 64}, dst[:7])
	require.True(t, math.Signbit(float64(dst[1])))
	require.Equal(t, float32(9), dst[200])
	for at, code := range map[int]byte{7: 0x7f, 8: 0xff, 257: 255} {
		bad := append([]byte(nil), row...)
		bad[at] = code
		require.ErrorIs(t, decodeRow(dst, encodingE4M3, gguf.I8, bad), gguf.ErrNonFinite)
	}
}

// TestRowsOfLloyd4: both ends of the codebook and of the exponent.
func TestRowsOfLloyd4(t *testing.T) {
	row, dst := make([]byte, 136), make([]float32, 256)
	for i := range 8 {
		row[128+i] = 16 << 3 // (8+0)/16 * 2^0
	}
	row[0], row[1] = 0x70, 0xf8        // values 0 to 3: 0, 1, -0, -1
	row[128+1], row[16] = 0<<3|7, 0x7  // value 32: 15/16 * 2^-16
	row[128+2], row[32] = 31<<3|7, 0x1 // value 64: 0.095 * 15/16 * 2^15
	require.NoError(t, decodeRow(dst, encodingLloyd4, gguf.I8, row))
	require.Equal(t, []float32{0, 0.5, 0, -0.5}, dst[:4])
	require.True(t, math.Signbit(float64(dst[2])))
	require.Equal(t, float32(15.0/16/65536), dst[32])
	require.InDelta(t, 0.095*15/16*32768, dst[64], 8) // bfloat16 has 8 bits
	require.Zero(t, math.Float32bits(dst[64])&0xffff)
}
