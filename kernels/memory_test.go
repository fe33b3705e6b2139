package kernels_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
)

// heap is a backend with memory of Go's heap and without ops.
type heap struct {
	kernels.Backend
	held   int
	full   bool
	shower bool // its ops do not run
}

func (h *heap) ValuesMatter() bool { return !h.shower }

func (h *heap) Alloc(n int) ([]byte, error) {
	if h.full {
		return nil, errors.New("full")
	}
	h.held += n
	return kernels.AlignedBytes(n), nil
}

func (h *heap) Free(mem []byte) { h.held -= len(mem) }

func TestEnlarge(t *testing.T) {
	h := &heap{}
	var x []int32
	require.NoError(t, kernels.Enlarge(h, &x, 2))
	x[0], x[1] = 5, 6
	require.NoError(t, kernels.Enlarge(h, &x, 3))
	require.Equal(t, []int32{5, 6, 0}, x)
	require.Equal(t, 12, h.held)

	h.full = true
	require.ErrorContains(t, kernels.Enlarge(h, &x, 4), "full")
	require.Equal(t, []int32{5, 6, 0}, x)
	require.Equal(t, 12, h.held)

	h.full, h.shower = false, true // nothing is copied, because no op has written it
	require.NoError(t, kernels.Enlarge(h, &x, 4))
	require.Equal(t, make([]int32, 4), x)
	require.Equal(t, 16, h.held)
}
