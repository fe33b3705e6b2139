//go:build metalsim

package gpu_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels"
	"ringmaster/kernels/gpu"
	"ringmaster/kernels/kerneltest"
	"ringmaster/tests/metalsim/control"
)

// chunk is a long prefill in small: a product of many tokens and an Attend of many
// rows, several times, without a Flush between.
func chunk(t *testing.T, b *gpu.Backend) ([]float32, error) {
	const tokens, cols, heads, dim, times = 160, 64, 16, 64, 3
	rng := rand.New(rand.NewPCG(3, 4))
	normal := func(n int) []float32 { return device(t, b, rng, n) }
	w, _ := matrix(t, b, gguf.Q8_0, heads*dim, cols, kerneltest.Blocks(rng, gguf.Q8_0, heads*dim*cols, 1./16))
	x, sinks := normal(tokens*cols), normal(heads)
	raw, err := kernels.Make[uint16](b, 2*tokens*dim)
	require.NoError(t, err)
	b.ToFloat16(raw, normal(2*tokens*dim), 2*tokens*dim)
	q, out := normal(tokens*heads*dim), normal(tokens*heads*dim)
	for range times {
		b.MatMul(x, tokens, kernels.Product{W: w, Out: q})
		b.Attend(kernels.AttendArgs{Out: out, Q: q, Raw: raw, Sinks: sinks, Rows: tokens, Heads: heads, HeadDim: dim, ValueDim: dim,
			Window: 20, RingRows: 2 * tokens, Pos: 50, Scale: 0.1})
	}
	err = b.Flush()
	return slices.Concat(q, out), err
}

func openLimited(t *testing.T, most time.Duration) *gpu.Backend {
	b := open(t).(*gpu.Backend)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	if most > 0 {
		b.SetMostWork(most)
	}
	return b
}

// TestMuchWorkIsSplit: dispatches of much work go to several command buffers, and
// those of many rows are divided; the bits stay the same.
func TestMuchWorkIsSplit(t *testing.T) {
	whole := openLimited(t, 0)
	want, err := chunk(t, whole)
	require.NoError(t, err)
	require.Equal(t, 1, whole.CommandBuffers())
	for most, least := range map[time.Duration]int{
		200 * time.Microsecond: 2,
		20 * time.Microsecond:  3*(160/32) + 3*2, // tiles of tokens, and halves of the rows
	} {
		b := openLimited(t, most)
		got, err := chunk(t, b)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.GreaterOrEqual(t, b.CommandBuffers(), least)
	}
}

// TestWatchdog: a chunk that the watchdog ends as one command buffer passes as
// several. The watchdog counts what the kernels execute, independently of the
// backend's estimate.
func TestWatchdog(t *testing.T) {
	testenv.Need(t, testenv.Full, "compiling all kernels a second time, to count what they execute")
	t.Setenv("MTLSIM_WATCHDOG", strconv.Itoa(1<<50))
	want, err := chunk(t, openLimited(t, time.Hour))
	require.NoError(t, err)
	t.Setenv("MTLSIM_WATCHDOG", strconv.Itoa(control.Count("longest")/3))
	_, err = chunk(t, openLimited(t, time.Hour))
	require.ErrorContains(t, err, "watchdog")
	got, err := chunk(t, openLimited(t, 20*time.Microsecond))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
