//go:build metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/metal"
)

func open(t testing.TB) *metal.Backend {
	b, err := metal.Open(metal.Options{})
	require.NoError(t, err)
	return b
}
