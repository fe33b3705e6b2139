//go:build cgo

package gpu

// #include "args/packed.h"
// #include "args/matmul.h"
// #include "args/experts.h"
import "C"

import (
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// A device with Info.Packed multiplies quantised weights as the CPU does, with activations
// quantised to 15 bits: an op packs its input, then multiplies. Weights of plainTypes are
// multiplied by float32 activations, as on the CPU. One kernel for each type gives a row the same
// bits for any number of tokens.

// packedTypes are the types that are multiplied by packed activations.
var packedTypes = []gguf.Type{
	gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0, gguf.MXFP4, gguf.IQ4NL,
	gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.IQ2XXS, gguf.IQ4XS,
}

// plainTypes are those that are converted to float32 and multiplied by float32 activations.
var plainTypes = []gguf.Type{
	gguf.F32, gguf.F16, gguf.BF16, gguf.NVFP4, gguf.IQ1S, gguf.IQ1M, gguf.IQ2XS, gguf.IQ2S, gguf.IQ3XXS, gguf.IQ3S,
}

var (
	packedLibrary = "packed"
	packKernel    = rareKernel(packedLibrary, "pack")
	packed1       = kernelsOf(packedLibrary, "packed1", packedTypes, plainTypes)
	packed4       = kernelsOf(packedLibrary, "packed4", packedTypes, plainTypes)
	packed8       = kernelsOf(packedLibrary, "packed8", packedTypes, plainTypes)
	packedGateUp  = kernelsOf(packedLibrary, "packed_gate_up", packedTypes)
	packedGEMM    = kernelsOf(packedLibrary, "packed_gemm", packedTypes)
	packedExpert  = kernelsOf(packedLibrary, "packed_expert", packedTypes, plainTypes)
	packedExperts = kernelsOf(packedLibrary, "packed_expert_gemm", packedTypes)
)

// Rows of weights of a threadgroup: of packed products, and of plain ones.
const (
	packedRows = C.RMG_PACKED_ROWS * C.RMG_PACKED_SIMDGROUPS
	plainRows  = 2 * C.RMG_PACKED_SIMDGROUPS
)

// rareKernel registers a kernel that is made when first used.
func rareKernel(library, name string) *kernel {
	k := newKernel(library, name)
	k.rare = true
	return k
}

// kernelsOf registers a kernel prefix_type for each type.
func kernelsOf(library, prefix string, types ...[]gguf.Type) map[gguf.Type]*kernel {
	byType := map[gguf.Type]*kernel{}
	for _, some := range types {
		for _, t := range some {
			byType[t] = rareKernel(library, prefix+"_"+decoders[t])
		}
	}
	return byType
}

// isPlain reports whether t is one of plainTypes.
func isPlain(t gguf.Type) bool { return slices.Contains(plainTypes, t) }

// input is the input of a product, as it is and packed. It is packed at most once.
type input struct {
	plain  bind
	packed bind // none until it is used
}

// of binds the input for weights of the type: `values` float32 numbers, or these packed.
func (x *input) of(b *Backend, op string, t gguf.Type, values int) bind {
	if isPlain(t) || values == 0 {
		return x.plain
	}
	if x.packed.bytes == 0 {
		groups := values / 32
		floats := groups * C.RMG_PACKED_GROUP / 4
		memory := b.scratch(op, floats)
		if memory == nil {
			return x.plain // the error is recorded: nothing is submitted
		}
		args := C.struct_rmg_pack{groups: C.uint32_t(groups)}
		dispatch(b, op, packKernel, &args, elements(groups), between(b, op, memory, floats, writes), x.plain)
		x.packed = between(b, op, memory, floats, reads)
	}
	return x.packed
}

// packedProduct encodes a run of a product.
func (b *Backend) packedProduct(op string, outs bind, x *input, tokens int, w kernels.Weight, v view, r run) {
	args := runArgs(w, v, r)
	xs := x.of(b, op, w.Type, tokens*w.Slices*w.Cols)
	n := r.rows * r.groups
	byType, most, rows := packed1, 1, packedRows
	switch {
	case tokens > 8 && !isPlain(w.Type):
		byType, most = packedGEMM, C.RMG_TILE_TOKENS
	case tokens > 4:
		byType, most = packed8, 8
	case tokens > 1:
		byType, most = packed4, 4
	}
	if isPlain(w.Type) {
		rows = plainRows
	}
	each := b.pieceRows(productWork(w, n, tokens), tokens, most)
	for token := 0; token < tokens; token += each {
		some := min(each, tokens-token)
		args.tokens = C.int32_t(some)
		g := grid{groups: [3]int{above(r.rows, rows), above(some, most), r.groups}, threads: [3]int{32 * C.RMG_PACKED_SIMDGROUPS, 1, 1}, work: productWork(w, n, some)}
		if most == C.RMG_TILE_TOKENS { // the tiles of a row of tiles are side by side, so that its weights stay in the caches
			g.groups, g.threads[0] = [3]int{above(some, most), above(r.rows, C.RMG_TILE_ROWS), r.groups}, C.RMG_TILE_THREADS
		}
		dispatch(b, op, byType[w.Type], &args, g, outs.rows(token, some, tokens), xs.rows(token, some, tokens), v.bound(), b.tables())
	}
}

// packedPair encodes gate and up of one quantised type at once.
func (c *expertCall) packedPair(mid bind, x *input, gate, up kernels.Weight, clamp float32) {
	in := x.of(c.b, c.op, gate.Type, c.a.Rows*gate.Cols)
	c.pairs(packedGateUp[gate.Type], packedRows, mid, in, gate, up, clamp)
}

// packedShape chooses the kernel of one stack, its grid but for the places, and the slots of a
// threadgroup.
func (c *expertCall) packedShape(w kernels.Weight) (k *kernel, g grid, slots int) {
	switch {
	case isPlain(w.Type):
		return packedExpert[w.Type], lines(above(w.Rows, plainRows), 32*C.RMG_PACKED_SIMDGROUPS), 1
	case c.tiles:
		return packedExperts[w.Type], lines(above(w.Rows, C.RMG_TILE_ROWS), C.RMG_TILE_THREADS), C.RMG_TILE_TOKENS
	}
	return packedExpert[w.Type], lines(above(w.Rows, packedRows), 32*C.RMG_PACKED_SIMDGROUPS), 1
}
