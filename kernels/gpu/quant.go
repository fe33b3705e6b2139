//go:build cgo

package gpu

import (
	"maps"
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// decoders names the decoder of a type in the names of kernels.
var decoders = map[gguf.Type]string{
	gguf.F32: "f32", gguf.F16: "f16", gguf.BF16: "bf16",
	gguf.Q4_0: "q4_0", gguf.Q4_1: "q4_1", gguf.Q5_0: "q5_0", gguf.Q5_1: "q5_1", gguf.Q8_0: "q8_0",
	gguf.MXFP4: "mxfp4", gguf.NVFP4: "nvfp4", gguf.IQ4NL: "iq4_nl",
	gguf.Q2_K: "q2_k", gguf.Q3_K: "q3_k", gguf.Q4_K: "q4_k", gguf.Q5_K: "q5_k", gguf.Q6_K: "q6_k",
	gguf.IQ1S: "iq1_s", gguf.IQ1M: "iq1_m", gguf.IQ2XXS: "iq2_xxs", gguf.IQ2XS: "iq2_xs", gguf.IQ2S: "iq2_s",
	gguf.IQ3XXS: "iq3_xxs", gguf.IQ3S: "iq3_s", gguf.IQ4XS: "iq4_xs",
}

// kernelsByType registers a kernel prefix_type for each type that has a decoder.
func kernelsByType(library, prefix string) map[gguf.Type]*kernel {
	byType := map[gguf.Type]*kernel{}
	for _, t := range slices.Sorted(maps.Keys(decoders)) {
		byType[t] = newKernel(library, prefix+"_"+decoders[t])
		byType[t].rare = true
	}
	return byType
}

// decodable panics unless the kernels can decode w. The decoders load aligned elements of
// up to 4 bytes. Tensors of GGUF files begin at a multiple of 8 bytes, and w a whole
// number of blocks after that.
func (b *Backend) decodable(op string, w kernels.Weight, address uintptr) {
	if !b.CanCompute(w.Type) {
		contract.Fail(op, "weight %q has type %s, which has no decoder", w.Name, w.Type)
	}
	grain := uintptr(grain(w.Type))
	if address%grain != 0 || uintptr(w.Stride())%grain != 0 || w.Slices > 1 && uintptr(w.SliceBytes)%grain != 0 {
		contract.Fail(op, "weight %q of %s does not begin at a multiple of %d bytes", w.Name, w.Type, grain)
	}
}

// grain is the alignment of the blocks of a type: the largest power of two up to 4
// that divides their length.
func grain(t gguf.Type) int {
	n := t.BlockBytes()
	return min(n&-n, 4)
}
