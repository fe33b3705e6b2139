//go:build cgo

package cpu_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
)

// TestStreamReadsAll: every level and number of threads reads each word once.
func TestStreamReadsAll(t *testing.T) {
	const chunk = 8<<20 + 32<<10
	for _, level := range cpu.Levels() {
		for _, threads := range []int{1, 3} {
			b, err := cpu.NewLevel(threads, level)
			require.NoError(t, err)
			for _, n := range []int{0, 64, 8 * 64, 9 * 64, chunk - 64, chunk, 2*chunk + 17*64} {
				mem, err := b.Alloc(n)
				require.NoError(t, err)
				var want uint64
				for i := 0; i < n; i += 8 {
					word := (uint64(i) + 1) * 0x9e3779b97f4a7c15
					binary.NativeEndian.PutUint64(mem[i:], word)
					want += word
				}
				require.Equal(t, want, b.ReadStream(mem), "%s, %d threads, %d bytes", level, threads, n)
				b.Free(mem)
			}
			require.NoError(t, b.Close())
		}
	}
}

// TestStreamSize: the buffer is much larger than the cache and takes at most a
// quarter of the free memory, or there is none.
func TestStreamSize(t *testing.T) {
	const mib, gib = int64(1) << 20, int64(1) << 30
	for _, c := range []struct{ free, cache, want int64 }{
		{64 * gib, 105 * mib, gib},
		{64 * gib, 0, gib},
		{64 * gib, 384 * mib, 1536 * mib},
		{2 * gib, 105 * mib, 512 * mib},
		{gib, 0, 256 * mib},
		{4*gib + 100, 16 * mib, gib},
		{3*gib + 100, 16 * mib, 768 * mib},
		{gib, 105 * mib, -1},
		{gib - 4, 0, -1},
		{0, 8 * mib, -1},
	} {
		n, err := cpu.StreamSize(c.free, c.cache)
		if c.want < 0 {
			require.ErrorContains(t, err, "four times the cache", "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, n, "%+v", c)
	}
}

// TestStreamRefused: without the memory or the backend there is no benchmark.
func TestStreamRefused(t *testing.T) {
	b, err := cpu.New(1)
	require.NoError(t, err)
	_, err = b.NewStream(1 << 20)
	require.ErrorContains(t, err, "four times the cache")
	require.NoError(t, b.Close())
	_, err = b.NewStream(1 << 40)
	require.ErrorContains(t, err, "the backend is closed")
}
