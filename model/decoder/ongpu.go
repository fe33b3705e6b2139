package decoder

import (
	"fmt"
	"slices"
)

// OnGPU is what of a model is in the memory of a GPU.
type OnGPU uint8

// What a GPU computes it has in its memory, with the buffers of a step and the KV caches.
const (
	NothingOnGPU OnGPU = iota
	DenseOnGPU         // all but the routed experts, which the CPU computes
	AllOnGPU
)

// onGPUNames are the values of OnGPU in JSON.
var onGPUNames = []string{"nothing", "dense", "all"}

// MarshalText writes nothing, dense or all.
func (at OnGPU) MarshalText() ([]byte, error) { return []byte(onGPUNames[at]), nil }

// UnmarshalText reads what MarshalText writes.
func (at *OnGPU) UnmarshalText(text []byte) error {
	i := slices.Index(onGPUNames, string(text))
	if i < 0 {
		return fmt.Errorf("%q is not one of %v", text, onGPUNames)
	}
	*at = OnGPU(i)
	return nil
}

// GPUWeights is the bytes of the weights in a GPU's memory. Those of the block for
// multi-token prediction count in full.
func (p Plan) GPUWeights(at OnGPU) int64 {
	switch at {
	case DenseOnGPU:
		return p.Dense + p.DraftWeights
	case AllOnGPU:
		return p.Weights()
	}
	return 0
}

// GPUBytes is the most bytes that the model takes of the GPU's memory.
func (p Plan) GPUBytes() int64 {
	if p.OnGPU == NothingOnGPU {
		return 0
	}
	return p.GPUWeights(p.OnGPU) + p.Fixed() - p.TableCache + p.budget()
}

// onGPU reports whether a row of the memory table is in the GPU's memory.
func (p Plan) onGPU(what string) bool {
	switch {
	case p.OnGPU == NothingOnGPU || slices.Contains([]string{"not read", "tables", "rows of tables", "working buffers", "program"}, what):
		return false
	case what == "routed experts":
		return p.OnGPU == AllOnGPU
	}
	return true
}
