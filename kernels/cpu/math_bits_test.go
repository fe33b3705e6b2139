//go:build cgo

package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMathBits: the hash of a host is always the same, or its ranks would reject each other.
func TestMathBits(t *testing.T) {
	first := MathBits()
	require.Regexp(t, "^[0-9a-f]{16}$", first)
	require.Equal(t, first, MathBits())
}
