//go:build cgo

package reduce

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// Edges of float16 and float32 where conversions and roundings go wrong.
var (
	edgeFloat16 = []uint16{0, 0x8000, 1, 0x8001, 2, 0x3ff, 0x83ff, 0x400, 0x401, 0x3bff, 0x3c00, 0x3c01, 0x6800, 0x6801, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7dff, 0x7e00, 0xfe00, 0xffff}
	edgeFloat32 = []uint32{0, 1 << 31, 1, 0x7fffff, 0x800000, 0x3f800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffc00000, 0x33800000}
)

// TestLevelsAgree compares every instruction set with plain Go, bit for
// bit, over random bits mixed with edges.
func TestLevelsAgree(t *testing.T) {
	best := level
	if best == 0 {
		t.Skip("NOT CHECKED: no vector code for this processor")
	}
	defer func() { level = best }()
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 400 {
		n := 1 + r.IntN(700)
		k := 2 + r.IntN(7)
		for _, dt := range []distributed.DType{distributed.Float16, distributed.Float32, distributed.Int32} {
			blocks := make([][]byte, k)
			for i := range blocks {
				blocks[i] = make([]byte, n*dt.Size())
				for j := range n {
					if dt == distributed.Float16 {
						v := uint16(r.Uint32())
						if r.IntN(3) == 0 {
							v = edgeFloat16[r.IntN(len(edgeFloat16))]
						}
						binary.LittleEndian.PutUint16(blocks[i][2*j:], v)
					} else {
						v := r.Uint32()
						switch r.IntN(4) {
						case 0:
							v = edgeFloat32[r.IntN(len(edgeFloat32))]
						case 1:
							v = math.Float32bits(float32(r.NormFloat64()))
						}
						binary.LittleEndian.PutUint32(blocks[i][4*j:], v)
					}
				}
			}
			want := make([]byte, n*dt.Size())
			portable(Sum, dt, want, blocks)
			for level = 1; level <= best; level++ {
				got := make([]byte, len(want))
				if fastSum(dt, got, blocks) {
					require.Equal(t, want, got, "round %d, level %d, %v, %d elements, %d blocks", round, level, dt, n, k)
				} else {
					require.Less(t, len(want), minBytes)
				}
			}
		}
	}
}

func TestLevelsFindNonFinite(t *testing.T) {
	best := level
	defer func() { level = best }()
	for level = 1; level <= best; level++ {
		for _, n := range []int{256, 257, 300, 319, 320, 321} {
			for i := range n {
				x := make([]byte, 2*n)
				found, ok := fastNonFinite(x)
				require.True(t, ok)
				require.False(t, found)
				binary.LittleEndian.PutUint16(x[2*i:], 0xfc00)
				found, ok = fastNonFinite(x)
				require.True(t, ok && found, "level %d, %d of %d", level, i, n)
			}
		}
	}
}
