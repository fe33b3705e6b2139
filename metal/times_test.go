//go:build metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
)

// TestDeviceTime: the device's clock advances with each command buffer that has been waited
// for, and each wait is counted.
func TestDeviceTime(t *testing.T) {
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	none, known := kernels.DeviceTime(b)
	require.True(t, known)
	require.Zero(t, none)
	x := kerneltest.OnDevice(t, b, make([]float32, 1000))
	for last, n := none, 1; n <= 3; n++ {
		b.Add(x, x, x, len(x))
		require.NoError(t, b.Flush())
		now, _ := kernels.DeviceTime(b)
		require.Greater(t, now, last)
		last = now
		c := b.Counts()
		require.Equal(t, []int{n, n, n, n}, []int{c.Dispatches, c.Stages, c.Buffers, c.Waits})
		require.Positive(t, c.Waiting.Took)
	}
	require.NoError(t, b.Flush())
	require.Equal(t, 3, b.Counts().Waits, "nothing to wait for")
}
