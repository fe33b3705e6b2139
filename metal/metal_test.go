//go:build (darwin && cgo) || metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/metal"
)

func open(t testing.TB) kernels.Backend {
	b, err := metal.Open(metal.Options{})
	require.NoError(t, err)
	return b
}
