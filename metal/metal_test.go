//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/metal"
)

func open(t testing.TB) kernels.Backend {
	b, err := metal.Open(metal.Options{})
	var unsuitable *metal.UnsuitableError
	if errors.As(err, &unsuitable) && !metal.Simulated {
		t.Skipf("NOT CHECKED: %s", unsuitable.Reason) // as on a hosted runner
	}
	require.NoError(t, err)
	return b
}
