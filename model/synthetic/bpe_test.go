package synthetic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMergesOf: what was learned before changes no merge.
func TestMergesOf(t *testing.T) {
	for _, n := range []int{40, 7, 90, 41, 0} {
		require.Equal(t, append([][2]string{}, trainBPE(corpus, n)...), append([][2]string{}, mergesOf(n)...), n)
	}
}
