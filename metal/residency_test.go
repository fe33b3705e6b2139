//go:build metalsim

package metal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/kerneltest"
	"ringmaster/metal"
	"ringmaster/tests/metalsim/control"
)

// limit bounds a wait for what the backend does by itself.
const limit = time.Minute

// stepper is a backend with some memory, and a step that uses it.
func stepper(t *testing.T, o metal.Options) (*metal.Backend, func()) {
	b, err := metal.Open(o)
	require.NoError(t, err)
	x := kerneltest.OnDevice(t, b, make([]float32, 1000))
	return b, func() {
		b.Add(x, x, x, len(x))
		require.NoError(t, b.Flush())
	}
}

// TestIdleMemoryStaysWired: macOS unwires memory that is idle, and wiring it again
// takes seconds. While the backend is open a thread renews the request, so that a
// step after any number of idle periods wires nothing.
func TestIdleMemoryStaysWired(t *testing.T) {
	b, step := stepper(t, metal.Options{})
	step()
	before := control.Count("wired")
	for range 3 {
		control.Idle()
		requests := control.Count("requests")
		require.Eventually(t, func() bool { return control.Count("requests") > requests }, limit, time.Millisecond,
			"the request was not renewed")
	}
	control.Idle()
	step()
	require.Equal(t, before, control.Count("wired"), "the step wired memory again")
	require.NoError(t, b.Close())
	requests := control.Count("requests")
	control.Idle()
	control.Idle()
	require.Equal(t, requests, control.Count("requests"), "the thread outlives the backend")
}

// TestIdleMemoryIsReleased: after Options.KeepWired without a step the request is not
// renewed, so the memory is unwired; the next step requests it again.
func TestIdleMemoryIsReleased(t *testing.T) {
	b, step := stepper(t, metal.Options{KeepWired: time.Nanosecond})
	for range 2 {
		step()
		require.True(t, b.Renewed())
		require.Eventually(t, func() bool { return !b.Renewed() }, limit, time.Millisecond)
		expired, wired := control.Count("expired"), control.Count("wired")
		control.Idle()
		control.Idle()
		require.Equal(t, expired+1, control.Count("expired"))
		step()
		require.Greater(t, control.Count("wired"), wired)
	}
	require.NoError(t, b.Close())
}
