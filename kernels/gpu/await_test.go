//go:build metalsim

package gpu_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
)

// TestAwait: ops that read what arrives are encoded before it has arrived and read what is
// there then; those that a change replaces do not run, and after an error none does.
func TestAwait(t *testing.T) {
	const n = 100
	broken := errors.New("the group is gone")
	for _, c := range []struct {
		name    string
		changed bool
		err     error
		want    float32
	}{
		{"as expected", false, nil, 1 + 2 + 2},
		{"changed", true, nil, 1 + 3 + 3},
		{"failed", false, broken, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := openLimited(t, 0)
			var x [5][]float32
			for i := range x {
				var err error
				x[i], err = kernels.Make[float32](b, n)
				require.NoError(t, err)
			}
			one, data, other, sum, out := x[0], x[1], x[2], x[3], x[4]
			for i := range n {
				one[i], data[i], other[i] = 1, -1, -1
			}
			b.Add(sum, one, data, n) // flushed before the exchange
			require.NoError(t, b.Flush())
			var calls []string
			arrived := false
			wait := func() (bool, error) {
				calls = append(calls, "wait")
				for i := range n {
					data[i], other[i] = 2, 3
				}
				arrived = true
				return c.changed, c.err
			}
			use := func() {
				calls = append(calls, "use")
				from := data
				if arrived && c.changed {
					from = other
				}
				b.Add(sum, from, one, n)
				if arrived && c.changed {
					b.Add(sum, from, one, n) // as many as it likes
				}
			}
			require.NoError(t, kernels.Await(b, wait, use))
			second := data
			if c.changed {
				second = other
			}
			b.Add(out, sum, second, n)
			b.Submit() // starts nothing
			require.Equal(t, []string{"use"}, calls)
			err := kernels.Reach(b)
			if c.err != nil {
				require.ErrorIs(t, err, broken)
				require.Equal(t, []string{"use", "wait"}, calls)
			} else {
				require.NoError(t, err)
			}
			for i := range n {
				require.Equal(t, c.want, out[i])
			}
			b.Add(out, one, one, n)
			require.NoError(t, b.Flush(), "a failed exchange is no failure of the device")
			require.Equal(t, float32(2), out[0])
		})
	}
}

// TestAwaitAfterAFailure: on a device that has failed, data that changes the ops is waited for
// all the same, and the failure is what Reach returns.
func TestAwaitAfterAFailure(t *testing.T) {
	b := openLimited(t, 0)
	x, err := kernels.Make[float32](b, 1)
	require.NoError(t, err)
	waits := 0
	wait := func() (bool, error) {
		waits++
		return true, nil
	}
	require.NoError(t, kernels.Await(b, wait, func() { b.Add(x, x, x, 1) }))
	lost := errors.New("the device is lost")
	b.Fail(lost)
	require.ErrorIs(t, kernels.Reach(b), lost)
	require.ErrorIs(t, b.Flush(), lost)
	require.Equal(t, 1, waits)
}

// TestSubmitKeepsBusy: the device begins before much is encoded, and later Submits commit
// only what keeps it busy for as long as all before.
func TestSubmitKeepsBusy(t *testing.T) {
	b := openLimited(t, 0)
	x, err := kernels.Make[float32](b, 1)
	require.NoError(t, err)
	one, err := kernels.Make[float32](b, 1)
	require.NoError(t, err)
	one[0] = 1
	added := 0
	for i, c := range []struct{ ops, buffers int }{{7, 1}, {13, 2}, {70, 2}, {10, 3}, {390, 3}, {10, 4}} {
		for range c.ops {
			b.Add(x, x, one, 1)
		}
		added += c.ops
		b.Submit()
		require.Equal(t, c.buffers, b.CommandBuffers(), "after submit %d", i)
	}
	for range 8 {
		b.Add(x, x, one, 1)
	}
	require.NoError(t, b.Flush())
	require.Equal(t, float32(added+8), x[0])
	before := b.CommandBuffers()
	for range 9 {
		b.Add(x, x, one, 1)
	}
	require.Equal(t, before+1, b.CommandBuffers(), "the first dispatches wait for the others")
	require.NoError(t, b.Flush())
	require.Equal(t, before+2, b.CommandBuffers())
}
