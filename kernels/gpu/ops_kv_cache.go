//go:build cgo

package gpu

// #include "args/kv_cache.h"
import "C"

import (
	"math"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	cacheLibrary         = "KV cache"
	storeKVKernel        = newKernel(cacheLibrary, "store_kv")
	compressStoreKernel  = newKernel(cacheLibrary, "compress_store")
	compressEntryKernel  = newKernel(cacheLibrary, "compress_entry")
	compressLatentKernel = newKernel(cacheLibrary, "compress_latent")
)

// StoreKV: see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	c := b.check(contract.StoreKV(ring, x, rows, cols, pos, ringRows))
	to, skip := float16s(b.operand(&c, "ring"))
	args := C.struct_rmg_store_kv{cols: C.int32_t(cols), pos: C.int32_t(pos), ring_rows: C.int32_t(ringRows), ring_skip: skip}
	dispatch(b, c.Op, storeKVKernel, &args, columns(cols, rows, false), to, b.operand(&c, "x"))
}

var apeTypes = map[gguf.Type]C.int32_t{gguf.F32: C.RMG_APE_F32, gguf.F16: C.RMG_APE_F16, gguf.BF16: C.RMG_APE_BF16}

// Compress: see kernels.Backend. One dispatch stores the projections, a
// second one computes the entries that they complete.
func (b *Backend) Compress(a kernels.CompressArgs) {
	c := b.check(contract.Compress(&a))
	width := a.Width()
	first, entries := a.Pos/a.Ratio, (a.Pos+a.Rows)/a.Ratio
	args := C.struct_rmg_compress{
		pos: C.int32_t(a.Pos), ratio: C.int32_t(a.Ratio), ring_rows: C.int32_t(a.RingRows),
		dim: C.int32_t(a.Dim), width: C.int32_t(width), pairs: C.int32_t(a.RotDim / 2),
		overlap: flag(a.Overlap), hadamard: flag(a.Hadamard), first: C.int32_t(first),
		ape_type: apeTypes[a.APE.Type], ape_row_bytes: C.uint32_t(a.APE.Stride()),
		eps: C.float(a.Eps), hadamard_scale: C.float(1 / math.Sqrt(float64(a.Dim))),
	}
	kv, score := b.operand(&c, "RingKV"), b.operand(&c, "RingScore")
	var views []view
	if a.APE.Exists() {
		views = b.rowViews(c.Op, a.APE)
	} else {
		args.ape_type, args.ape_count = C.RMG_APE_NONE, C.int32_t(a.Ratio)
		dispatch(b, c.Op, compressStoreKernel, &args, columns(width, a.Rows, false), kv, score,
			b.operand(&c, "KV"), b.operand(&c, "Score"), bind{b.faults().binding, 0, constant})
	}
	for _, v := range views {
		args.ape_first, args.ape_count, args.ape_shift = C.int32_t(v.first), C.int32_t(v.count), C.uint32_t(v.shift)
		dispatch(b, c.Op, compressStoreKernel, &args, columns(width, a.Rows, false), kv, score,
			b.operand(&c, "KV"), b.operand(&c, "Score"), v.bound())
	}
	if first >= entries {
		return
	}
	kv.access, score.access = reads, reads
	if a.Latent != nil {
		g := lines(entries-first, threadsFor(a.Dim, 256))
		g.shared = sharedFloats(a.Dim)
		dispatch(b, c.Op, compressLatentKernel, &args, g, b.operand(&c, "Latent"), kv, score, b.operand(&c, "Norm"))
		return
	}
	cache, skip := float16s(b.operand(&c, "Cache"))
	args.cache_skip = skip
	g := lines(entries-first, threadsFor(a.Dim, 256))
	g.shared = sharedFloats(a.Dim)
	dispatch(b, c.Op, compressEntryKernel, &args, g, cache, kv, score, b.operand(&c, "Norm"), b.operand(&c, "Freqs"))
}
