package lanes

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
)

// travel adds blocks of several ranks as they travel: as one rank adds the messages of the
// others, or lane by lane.
func travel(t *testing.T, ranks [][]int64, reduced bool) []int64 {
	n, growth := len(ranks[0]), bits.Len(uint(len(ranks)-1))
	if !reduced {
		most, out := 0, append([]int64(nil), ranks[0]...)
		for _, x := range ranks {
			most = max(most, limitsOf(x).Packed(n).Lanes())
		}
		for _, x := range ranks[1:] {
			l, lanes := limitsOf(x).Packed(n), make([]int32, 3*n)
			require.NotEqual(t, Unfit, l)
			require.Len(t, l.encode(lanes, x), 3*n-l.size(n))
			require.Len(t, l.add(out, lanes, most > 2), 3*n-l.size(n))
		}
		return out
	}
	var all Limits
	for _, x := range ranks {
		l := limitsOf(x)
		all.High, all.Low = max(all.High, l.High), max(all.Low, l.Low)
	}
	l, sum := all.Layout(growth), make([]int32, 3*n)
	for _, x := range ranks {
		lanes := make([]int32, 3*n)
		l.encode(lanes, x)
		for i, v := range lanes {
			sum[i] += v
		}
	}
	out := make([]int64, n)
	l.add(out, sum, false)
	return out
}

// requireSums checks travel against big integers. Sums of more than 63 bits are left out,
// because 255 terms do not reach them.
func requireSums(t *testing.T, ranks [][]int64) {
	t.Helper()
	want := make([]int64, len(ranks[0]))
	for i := range want {
		sum := new(big.Int)
		for _, x := range ranks {
			if x[i] == kernels.NotANumber {
				want[i] = kernels.NotANumber
			}
			sum.Add(sum, big.NewInt(x[i]))
		}
		if want[i] == 0 {
			if !sum.IsInt64() || sum.Int64() == math.MinInt64 {
				for _, x := range ranks {
					x[i] = 0
				}
				sum.SetInt64(0)
			}
			want[i] = sum.Int64()
		}
	}
	require.Equal(t, want, travel(t, ranks, false), "gathered %v", ranks)
	require.Equal(t, want, travel(t, ranks, true), "reduced %v", ranks)
	if len(want) < Block { // a whole block may be packed
		whole := make([][]int64, len(ranks))
		for r, x := range ranks {
			whole[r] = append(make([]int64, Block-len(x)), x...)
		}
		require.Equal(t, want, travel(t, whole, false)[Block-len(want):], "packed %v", ranks)
	}
}

// TestLanes: blocks at the limits of each number of lanes.
func TestLanes(t *testing.T) {
	for _, c := range []struct {
		x     []int64
		lanes int // of 2 ranks that add it
	}{
		{[]int64{0, 0}, 0}, {[]int64{1, -1}, 1}, {[]int64{-1, -1}, 1}, {[]int64{1<<30 - 1, 1}, 1}, {[]int64{-1 << 30, 1}, 1},
		{[]int64{1 << 30, 1}, 2}, {[]int64{-1<<30 - 1, 0}, 2}, {[]int64{1 << 50, 1 << 20}, 2}, {[]int64{1 << 49, 1 << 20}, 1},
		{[]int64{1<<54 - 1, 1}, 2}, {[]int64{1 << 54, 1}, 3}, {[]int64{1 << 54, 1 << 30}, 1}, {[]int64{-1 << 54, 3}, 2}, {[]int64{1 << 61, -1 << 61}, 3},
		{[]int64{math.MaxInt64 / 2, -math.MaxInt64 / 2}, 3}, {[]int64{kernels.NotANumber, 0}, 3}, {[]int64{kernels.NotANumber, kernels.NotANumber}, 3},
	} {
		require.Equal(t, c.lanes, limitsOf(c.x).Layout(1).Lanes(), "%v", c.x)
		requireSums(t, [][]int64{c.x, c.x})
		requireSums(t, [][]int64{c.x, {-c.x[0], 0}})
		requireSums(t, [][]int64{c.x, {5, -7}})
		few := make([][]int64, 255)
		for r := range few {
			few[r] = []int64{c.x[0] / 255, c.x[1] / 255}
		}
		few[7] = []int64{c.x[1], 1}
		requireSums(t, few)
	}
}

// TestForeignLayouts: what a layout of another rank says lies within the length that is counted,
// also of parts of blocks that no rank packs.
func TestForeignLayouts(t *testing.T) {
	for l := range 256 {
		for n := 1; n <= Block; n++ {
			layouts := []Layout{Layout(l)}
			src := make([]int32, Len(layouts, n))
			bytes := map[int]int{words: 2 * n, triples: 3 * n}[layouts[0].form()]
			require.LessOrEqual(t, bytes, 4*len(src))
			require.Empty(t, layouts[0].add(make([]int64, n), src, true))
			Add(make([]int64, n), layouts, src, n, false)
		}
	}
}

// TestPacked: whole blocks at the limits of two and three bytes, and parts of blocks, which
// stay in lanes.
func TestPacked(t *testing.T) {
	for _, c := range []struct {
		x    int64
		size int // in int32
	}{
		{0, 0}, {1, 32}, {1<<15 - 1, 32}, {-1 << 15, 32}, {1<<15 + 1, 48}, {-1<<15 - 1, 48}, {1<<23 - 1, 48}, {-1<<23 + 1, 48}, {1<<23 + 1, 64},
		{-1<<23 - 1, 64}, {1 << 40, 32}, {0x7fff << 40, 32}, {0x7fff << 39, 48}, {0x7fffff << 32, 48}, {0x7fffff << 31, 64}, {1<<32 + 1, 128}, {1 << 62, 192},
	} {
		x := make([]int64, Block)
		x[5] = c.x
		require.Equal(t, c.size, limitsOf(x).Packed(Block).size(Block), "%#x", c.x)
		requireSums(t, [][]int64{x, x})
		requireSums(t, [][]int64{make([]int64, Block), x})
		require.Contains(t, []int{0, 1, 2, 3}, limitsOf(x[5:6]).Packed(1).size(1))
	}
}

func FuzzLanes(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 9, 9, 9, 9, 0, 0, 0, 0}, uint8(3), uint8(20))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 1, 0, 0, 0, 0}, uint8(2), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, ranks, shift uint8) {
		size := 1 + int(ranks)%9
		n := len(data) / 8 / size
		if n == 0 || n > Block {
			return
		}
		all := make([][]int64, size)
		for r := range all {
			for i := range n {
				v := int64(binary.LittleEndian.Uint64(data[8*(r*n+i):]))
				if v != kernels.NotANumber {
					v >>= shift % 64
				}
				all[r] = append(all[r], v)
			}
		}
		requireSums(t, all)
	})
}
