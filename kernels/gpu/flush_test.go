//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
)

// BenchmarkFlush compares the ways to wait for a command buffer of one small
// dispatch: looking at a shared event first, sleeping until it is signalled, and
// waitUntilCompleted.
func BenchmarkFlush(bench *testing.B) {
	for _, way := range []struct {
		name string
		set  func(*gpu.Backend)
	}{
		{"look", func(*gpu.Backend) {}},
		{"sleep", func(b *gpu.Backend) { b.SetWait(0, 60000) }},
		{"completed", func(b *gpu.Backend) { b.Block() }},
	} {
		bench.Run(way.name, func(bench *testing.B) {
			b := open(bench).(*gpu.Backend)
			defer b.Close()
			way.set(b)
			x, err := kernels.Make[float32](b, 64)
			require.NoError(bench, err)
			for bench.Loop() {
				b.Add(x, x, x, len(x))
				require.NoError(bench, b.Flush())
			}
		})
	}
}
