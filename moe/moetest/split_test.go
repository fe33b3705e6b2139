package moetest

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// TestSplit: children by color and key, with sums of their own, which fail with
// their parent.
func TestSplit(t *testing.T) {
	groups := New(5)
	colors, keys := []int{1, 0, 1, 0, distributed.Undefined}, []int{2, 0, 1, 0, 0}
	children := make([]*distributed.Group, 5)
	sums := make([]float32, 5)
	errs := make([]error, 5)
	var all sync.WaitGroup
	for r, g := range groups {
		all.Go(func() {
			if children[r], errs[r] = g.Split(t.Context(), colors[r], keys[r]); children[r] == nil {
				return
			}
			src := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(int(1)<<r)))
			dst := make([]byte, 4)
			errs[r] = children[r].AllSum(t.Context(), dst, src, distributed.Float32)
			sums[r] = math.Float32frombits(binary.LittleEndian.Uint32(dst))
		})
	}
	all.Wait()
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
	require.Equal(t, []float32{5, 10, 5, 10, 0}, sums)
	require.Nil(t, children[4])
	require.Equal(t, []int{1, 0, 0, 1}, []int{children[0].Rank(), children[1].Rank(), children[2].Rank(), children[3].Rank()})
	cause := errors.New("enough")
	groups[4].Fail(cause)
	require.ErrorIs(t, children[0].Barrier(t.Context()), cause)
	_, err := groups[0].Split(t.Context(), 0, 0)
	require.ErrorIs(t, err, cause)
}
