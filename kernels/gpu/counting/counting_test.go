//go:build cgo && (linux || darwin)

package counting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/gpu/counting"
)

// TestStages: ops that depend on each other are in stages one after the other, and ops that do
// not depend on them are in these too, wherever they were encoded.
func TestStages(t *testing.T) {
	const n = 16
	b, err := counting.Open(gpu.Info{Busy: 1, AttendGroups: 1, Flops: 1e12, Bytes: 1e11, MostWork: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	x, err := kernels.Make[float32](b, 8*n)
	require.NoError(t, err)
	at := func(i int) []float32 { return x[i*n : (i+1)*n] }
	add := func(out, a, c int) { b.Add(at(out), at(a), at(c), n) }
	for _, c := range []struct {
		name   string
		encode func()
		stages int
	}{
		{"a chain", func() { add(1, 0, 0); add(2, 1, 0); add(3, 2, 0) }, 3},
		{"two chains, one after the other", func() {
			add(1, 0, 0)
			add(2, 1, 0)
			add(3, 2, 0)
			add(4, 0, 0)
			add(5, 4, 0)
			add(6, 5, 0)
		}, 3},
		{"a chain that ends in another", func() { add(1, 0, 0); add(2, 1, 0); add(4, 0, 0); add(5, 4, 2) }, 3},
		{"written after it was read", func() { add(1, 0, 0); add(2, 1, 0); add(1, 0, 0) }, 3},
		{"written twice", func() { add(1, 0, 0); add(1, 2, 0) }, 2},
		{"read by two", func() { add(1, 0, 0); add(2, 1, 0); add(3, 1, 0) }, 2},
		{"neighbours", func() { b.Add(x[:n], x[n:2*n], x[n:2*n], n); b.Add(x[2*n:3*n], x[n:2*n], x[n:2*n], n) }, 1},
	} {
		before := b.Counts()
		c.encode()
		require.NoError(t, b.Flush())
		got := b.Counts().Minus(before)
		require.Equal(t, c.stages, got.Stages, c.name)
		require.Equal(t, c.stages, got.Light, c.name)
		require.Equal(t, 1, got.Waits, c.name)
		require.Equal(t, map[string]int{"add": got.Dispatches}, got.Of, c.name)
	}
}
