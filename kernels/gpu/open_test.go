//go:build (darwin && cgo) || metalsim

package gpu_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/metal"
)

// open opens the system's device.
func open(t testing.TB) kernels.Backend {
	b, err := metal.Open(metal.Options{})
	var unsuitable *metal.UnsuitableError
	if errors.As(err, &unsuitable) && runtime.GOOS == "darwin" {
		t.Skipf("NOT CHECKED: %s", unsuitable.Reason) // as on a hosted runner
	}
	require.NoError(t, err)
	return b.Backend
}
