//go:build cgo

package gpu

// #include "args/norms.h"
import "C"

import (
	"math"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	normLibrary         = "norms"
	rmsNormKernel       = newKernel(normLibrary, "rms_norm")
	layerNormKernel     = newKernel(normLibrary, "layer_norm")
	ropeKernel          = newKernel(normLibrary, "rope")
	normRopeKernel      = newKernel(normLibrary, "norm_rope")
	hadamardBlockKernel = newKernel(normLibrary, "hadamard_block")
	hadamardStepKernel  = newKernel(normLibrary, "hadamard_step")
)

// RMSNorm: see kernels.Backend.
func (b *Backend) RMSNorm(out, x, weight []float32, rows, cols int, eps float32) {
	c := b.check(contract.RMSNorm(out, x, weight, rows, cols))
	o, in, w := b.operand(&c, "out"), b.operand(&c, "x"), b.operand(&c, "weight")
	args := C.struct_rmg_rms_norm{cols: C.int32_t(cols), weighted: flag(weight != nil), eps: C.float(eps)}
	args.vectors = flag(cols%4 == 0 && aligned(16, o, in, w))
	dispatch(b, c.Op, rmsNormKernel, &args, lines(rows, threadsFor(cols/4, 256)), o, in, w)
}

// LayerNorm: see kernels.Backend.
func (b *Backend) LayerNorm(out, x, weight, bias []float32, rows, cols int, eps float32) {
	c := b.check(contract.LayerNorm(out, x, weight, bias, rows, cols))
	args := C.struct_rmg_layer_norm{cols: C.int32_t(cols), eps: C.float(eps)}
	dispatch(b, c.Op, layerNormKernel, &args, lines(rows, threadsFor(cols, 256)),
		b.operand(&c, "out"), b.operand(&c, "x"), b.operand(&c, "weight"), b.operand(&c, "bias"))
}

// RoPE: see kernels.Backend.
func (b *Backend) RoPE(a kernels.RoPEArgs) {
	c := b.check(contract.RoPE(&a))
	if !a.Alone() && a.HeadDim <= hadamardBlock {
		b.normRope(&c, &a)
		return
	}
	if a.Norm {
		b.RMSNorm(a.X, a.X, a.NormWeight, a.Rows*a.Heads, a.HeadDim, a.Eps)
	}
	b.rope(c.Op, &a, b.operand(&c, "X"), b.operand(&c, "Pos"), b.operand(&c, "Freqs"))
	if a.Hadamard {
		b.Hadamard(a.X, a.Rows*a.Heads, a.HeadDim)
	}
	if a.Ring != nil {
		b.StoreKV(a.Ring, a.X, a.Rows, a.HeadDim, a.RingPos, a.RingRows)
	}
}

// ropeOf is what a rotation is for the kernels.
func ropeOf(a *kernels.RoPEArgs) C.struct_rmg_rope {
	args := C.struct_rmg_rope{
		heads: C.int32_t(a.Heads), head_dim: C.int32_t(a.HeadDim), pairs: C.int32_t(a.RotDim / 2), inverse: flag(a.Inverse),
		first: C.int32_t(a.HeadDim - a.RotDim), step: 2, apart: 1, magnitude: C.float(a.Turn()),
	}
	if a.Front {
		args.first = 0
	}
	if a.Halves {
		args.step, args.apart = 1, C.int32_t(a.RotDim/2)
	}
	return args
}

// rope encodes the rotation of x alone.
func (b *Backend) rope(op string, a *kernels.RoPEArgs, x, pos, freqs bind) {
	if a.RotDim == 0 {
		return
	}
	args := ropeOf(a)
	blocks := above(a.Heads, C.RMG_ROPE_HEADS)
	work := min(a.RotDim/2, 64) * min(a.Heads, C.RMG_ROPE_HEADS)
	dispatch(b, op, ropeKernel, &args, grid{groups: [3]int{blocks, a.Rows, 1}, threads: [3]int{threadsFor(work, 256), 1, 1}},
		x, pos, freqs)
}

// normRope encodes a rotation with what comes before and after it.
func (b *Backend) normRope(c *contract.Call, a *kernels.RoPEArgs) {
	x, weight := b.operand(c, "X"), b.operand(c, "NormWeight")
	ring, skip := float16s(b.operand(c, "Ring"))
	turn := ropeOf(a)
	args := C.struct_rmg_norm_rope{
		heads: turn.heads, head_dim: turn.head_dim, pairs: turn.pairs, first: turn.first, step: turn.step, apart: turn.apart,
		inverse: turn.inverse, magnitude: turn.magnitude, normed: flag(a.Norm), weighted: flag(a.Norm && a.NormWeight != nil), hadamard: flag(a.Hadamard),
		vectors: flag(a.HeadDim%4 == 0 && aligned(16, x, weight)),
		eps:     C.float(a.Eps), hadamard_scale: C.float(1 / math.Sqrt(float64(a.HeadDim))),
	}
	if a.Ring != nil {
		args.ring_pos, args.ring_rows, args.ring_skip = C.int32_t(a.RingPos), C.int32_t(a.RingRows), skip
	}
	g := grid{groups: [3]int{a.Heads, a.Rows, 1}, threads: [3]int{threadsFor(a.HeadDim/4, 256), 1, 1}, shared: sharedFloats(a.HeadDim)}
	dispatch(b, c.Op, normRopeKernel, &args, g, x, b.operand(c, "Pos"), b.operand(c, "Freqs"), weight, ring)
}

// hadamardBlock is the longest transform in threadgroup memory: half of the memory
// of the smallest device.
const hadamardBlock = 4096

// Hadamard: see kernels.Backend.
func (b *Backend) Hadamard(x []float32, rows, dim int) {
	c := b.check(contract.Hadamard(x, rows, dim))
	bound := b.operand(&c, "x")
	block := min(dim, hadamardBlock)
	scale := C.float(1 / math.Sqrt(float64(dim)))
	args := C.struct_rmg_hadamard{dim: C.int32_t(block), n: C.int32_t(rows * dim / 2), scale: 1}
	if block == dim {
		args.scale = scale
	}
	g := lines(rows*dim/block, threadsFor(block/2, 256))
	g.shared = max(16, 4*block)
	dispatch(b, c.Op, hadamardBlockKernel, &args, g, bound)
	for step := block; step < dim; step *= 2 {
		if 2*step == dim {
			args.scale = scale
		}
		args.step = C.int32_t(step)
		dispatch(b, c.Op, hadamardStepKernel, &args, elements(rows*dim/2), bound)
	}
}
