package vulkan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	lavapipe := Description{Name: "llvmpipe (LLVM 15)", Kind: CPU, Heap: 2 << 30}
	strix := Description{Name: "Radeon 8060S", Kind: Integrated, Heap: 96 << 30}
	small := Description{Name: "RTX 3050", Kind: Discrete, Heap: 8 << 30}
	large := Description{Name: "RTX 4090", Kind: Discrete, Heap: 24 << 30}
	old := Description{Name: "GTX 680", Kind: Discrete, Heap: 48 << 30, Missing: "shaderInt8"}
	for _, c := range []struct {
		all    []Description
		wanted string
		want   int
		fails  string
	}{
		{all: []Description{lavapipe, strix, small, large, old}, want: 3},
		{all: []Description{lavapipe, strix}, want: 1},
		{all: []Description{lavapipe, old}, fails: "0: llvmpipe (LLVM 15), computes on the CPU; 1: GTX 680, discrete, has no shaderInt8"},
		{fails: "there are none"},
		{all: []Description{strix, lavapipe}, wanted: "LLVMpipe", want: 1},
		{all: []Description{strix, lavapipe}, wanted: "1", want: 1},
		{all: []Description{strix}, wanted: "1", fails: `has "1" in its name`},
		{all: []Description{strix}, wanted: "4090", fails: `"4090"`},
	} {
		got, err := choose(c.all, c.wanted)
		if c.fails != "" {
			require.ErrorContains(t, err, c.fails)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}
