//go:build cgo

package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
)

// TestMathBits: the hash of a host is always the same, or its ranks would reject each other.
func TestMathBits(t *testing.T) {
	first := cpu.MathBits()
	require.Regexp(t, "^[0-9a-f]{16}$", first)
	require.Equal(t, first, cpu.MathBits())
}
