//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/metal"
)

// BenchmarkFlush compares the ways to wait for a command buffer of one small
// dispatch: looking at a shared event first, sleeping until it is signalled, and
// waitUntilCompleted.
func BenchmarkFlush(bench *testing.B) {
	for _, way := range []struct {
		name string
		set  func(*metal.Backend)
	}{
		{"look", func(*metal.Backend) {}},
		{"sleep", func(b *metal.Backend) { b.SetWait(0, 60000) }},
		{"completed", func(b *metal.Backend) { b.Block() }},
	} {
		bench.Run(way.name, func(bench *testing.B) {
			b := open(bench).(*metal.Backend)
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
