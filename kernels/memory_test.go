package kernels_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
	"ringmaster/kernels/profile"
	"ringmaster/kernels/record"
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

// card is a heap with a second kind of memory.
type card struct {
	heap
	host int // bytes of AllocHost
}

func (c *card) AllocHost(n int) ([]byte, error) {
	c.host += n
	return kernels.AlignedBytes(n), nil
}

func (c *card) Host() kernels.Host { return kernels.Host{SlowReads: true} }

func TestMakeHost(t *testing.T) {
	h := &heap{} // one kind of memory is for both
	x, err := kernels.MakeHost[int32](h, 2)
	require.NoError(t, err)
	require.Len(t, x, 2)
	require.Equal(t, 8, h.held)
	require.Zero(t, kernels.HostOf(h))

	c := &card{}
	for name, around := range map[string]kernels.Backend{
		"itself":  c,
		"record":  record.Wrap(c),
		"profile": profile.NewSwitch(c, time.Now),
		"each":    contract.NewEach(c, nil),
	} {
		t.Run(name, func(t *testing.T) {
			held, host := c.held, c.host
			y, err := kernels.MakeHost[uint16](around, 3)
			require.NoError(t, err)
			require.Len(t, y, 3)
			require.Equal(t, held, c.held)
			require.Equal(t, host+6, c.host)
			require.True(t, kernels.HostOf(around).SlowReads)
		})
	}
}
