package hybrid_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/deferred"
	"ringmaster/kernels/hybrid"
	"ringmaster/kernels/kerneltest"
	"ringmaster/kernels/reference"
)

// card is a lazy backend for the GPU. The host reads the memory of its Alloc slowly.
type card struct{ *deferred.Backend }

func (card) Host() kernels.Host { return kernels.Host{SlowReads: true} }

// TestResults: every op has the bits of the backends alone, with memory of one kind and of
// two.
func TestResults(t *testing.T) {
	t.Run("one kind of memory", func(t *testing.T) {
		kerneltest.Around(t, func(inner kernels.Backend) kernels.Backend {
			return hybrid.New(deferred.Wrap(inner), reference.New())
		})
	})
	t.Run("two kinds", func(t *testing.T) {
		kerneltest.Around(t, func(inner kernels.Backend) kernels.Backend {
			return hybrid.New(card{deferred.Wrap(inner)}, reference.New())
		})
	})
}

// numbers are n numbers in memory that host and device read.
func numbers[T float32 | int32 | int64](t *testing.T, b kernels.Backend, n int, values ...T) []T {
	x, err := kernels.MakeHost[T](b, n)
	require.NoError(t, err)
	copy(x, values)
	return x
}

// submits counts the Submits of the GPU and Adds that they started.
type submits struct {
	kernels.Backend
	encoded, started int
}

func (s *submits) Add(out, a, b []float32, n int) {
	s.encoded++
	s.Backend.Add(out, a, b, n)
}

func (s *submits) Submit() {
	s.started += s.encoded
	s.encoded = 0
	s.Backend.Submit()
}

func (s *submits) Flush() error {
	s.encoded = 0
	return s.Backend.Flush()
}

// TestOrder: the host waits for the GPU once before its ops, does not wait for the GPU's ops
// that it does not need, and these are started before it computes.
func TestOrder(t *testing.T) {
	gpu := &submits{Backend: deferred.Wrap(reference.New())}
	b := hybrid.New(gpu, reference.New())
	defer func() { require.NoError(t, b.Close()) }()
	logits, ids, weights := numbers[float32](t, b, 3, 1, 3, 2), numbers[int32](t, b, 2), numbers[float32](t, b, 2)
	x, y, z := numbers[float32](t, b, 2, 5, 6), numbers[float32](t, b, 2), numbers[float32](t, b, 2)
	for layer := range 3 {
		b.Route(kernels.RouteArgs{Logits: logits, IDs: ids, Weights: weights, Rows: 1, Experts: 3, Used: 2, Scale: 1})
		b.ExpertMask(weights, ids, 2, 1, 2) // only expert 1 is here
		require.EqualValues(t, layer, b.Waits(), "it waits before an op that it does not need")
		b.Add(y, x, x, 2) // does not depend on the mask
		require.EqualValues(t, layer+1, b.Waits())
		require.NotZero(t, weights[0])
		require.NotZero(t, weights[1], "the mask ran before what the GPU can do meanwhile was started")
		b.SumSlots(z, weights, 1, 2, 1)
		before := gpu.started
		b.Submit()
		require.Equal(t, before+1, gpu.started)
		require.Zero(t, weights[1])
		require.Equal(t, weights[0], z[0])
		b.Add(x, y, z, 1) // needs the sum: encoded after it, without a wait
		require.EqualValues(t, layer+1, b.Waits())
	}
	require.NoError(t, b.Flush())
	require.Equal(t, 8*5+7*weights[0], x[0])
	require.Equal(t, []int32{1, 2}, ids)
}

// TestFailure: a failure of either is that of the backend, and a failed GPU's numbers are
// not computed with.
func TestFailure(t *testing.T) {
	gpu := deferred.Wrap(reference.New())
	b := hybrid.New(gpu, reference.New())
	weights, ids := numbers[float32](t, b, 1, 1), numbers[int32](t, b, 1)
	b.Add(weights, weights, weights, 1)
	weights[0] = 5 // the host must not
	b.ExpertMask(weights, ids, 1, 1, 2)
	err := b.Flush()
	require.ErrorContains(t, err, "the host wrote")
	require.EqualValues(t, 5, weights[0])
	require.ErrorContains(t, b.Flush(), "the host wrote")
	require.NoError(t, b.Close())
}

func TestWhatItIs(t *testing.T) {
	b := hybrid.New(card{deferred.Wrap(reference.New())}, reference.New())
	require.Equal(t, "deferred reference, experts on reference", b.Name())
	require.Equal(t, kernels.Host{SlowReads: true, Experts: true}, kernels.HostOf(b))
	require.True(t, kernels.RowsAgree(b))
	require.Nil(t, kernels.PackerOf(b))
	x := numbers[float32](t, b, 3)
	kernels.Release(b, x)
	require.Panics(t, func() { kernels.Release(b, x) })
	require.NoError(t, b.Close())
}
