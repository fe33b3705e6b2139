//go:build (darwin && cgo) || metalsim

package metal

import (
	"maps"
	"slices"

	"ringmaster/gguf"
)

// decoders names the struct of shaders/quant.metal that decodes a type.
var decoders = map[gguf.Type]string{
	gguf.F32: "f32", gguf.F16: "f16", gguf.Q8_0: "q8_0",
}

// kernelsByType notes a kernel prefix_type for each type that can be decoded.
func kernelsByType(library int, prefix string) map[gguf.Type]*kernel {
	byType := map[gguf.Type]*kernel{}
	for _, t := range slices.Sorted(maps.Keys(decoders)) {
		byType[t] = newKernel(library, prefix+"_"+decoders[t])
	}
	return byType
}
