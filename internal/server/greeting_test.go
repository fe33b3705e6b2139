package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemorySentence: what a small model may take at most does not stand alone.
func TestMemorySentence(t *testing.T) {
	require.Equal(t, "Memory: 22.0 MiB of weights, and 61.0 MiB beside them now; many long conversations and requests may take up to 955.0 MiB (--memory sets less)",
		memorySentence(22<<20, 61<<20, 955<<20))
	require.Equal(t, "Memory: 4.00 GiB of weights; many long conversations and requests may take up to 6.00 GiB (--memory sets less)",
		memorySentence(4<<30, 0, 6<<30))
}
