//go:build (darwin && cgo) || metalsim

package metal

// #include "shaders/cache.h"
import "C"

import (
	"math"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	cacheLibrary        = newLibrary("cache", "rotate.metal", "cache.h", "cache.metal")
	storeKVKernel       = newKernel(cacheLibrary, "store_kv")
	compressStoreKernel = newKernel(cacheLibrary, "compress_store")
	compressEntryKernel = newKernel(cacheLibrary, "compress_entry")
)

// StoreKV: see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	const op = "StoreKV"
	b.live(op)
	contract.StoreKV(ring, x, rows, cols, pos, ringRows)
	to, skip := halves(b, op, ring, ringRows*cols, updates)
	args := C.struct_rm_store_kv{cols: C.int32_t(cols), pos: C.int32_t(pos), ring_rows: C.int32_t(ringRows), ring_skip: skip}
	dispatch(b, op, storeKVKernel, &args, columns(cols, rows, false), to, slice(b, op, x, rows*cols, reads))
}

var apeTypes = map[gguf.Type]C.int32_t{gguf.F32: C.RM_APE_F32, gguf.F16: C.RM_APE_F16, gguf.BF16: C.RM_APE_BF16}

// Compress: see kernels.Backend. One dispatch stores the projections, one
// computes all entries that they complete.
func (b *Backend) Compress(a kernels.CompressArgs) {
	const op = "Compress"
	b.live(op)
	contract.Compress(&a)
	width := contract.Width(&a)
	first, entries := a.Pos/a.Ratio, (a.Pos+a.Rows)/a.Ratio
	args := C.struct_rm_compress{
		pos: C.int32_t(a.Pos), ratio: C.int32_t(a.Ratio), ring_rows: C.int32_t(a.RingRows),
		dim: C.int32_t(a.Dim), width: C.int32_t(width), pairs: C.int32_t(a.RotDim / 2),
		overlap: flag(a.Overlap), hadamard: flag(a.Hadamard), first: C.int32_t(first),
		ape_type: apeTypes[a.APE.Type], ape_row_bytes: C.uint32_t(a.APE.RowBytes()),
		eps: C.float(a.Eps), hadamard_scale: C.float(1 / math.Sqrt(float64(a.Dim))),
	}
	kv, score := slice(b, op, a.RingKV, a.RingRows*width, updates), slice(b, op, a.RingScore, a.RingRows*width, updates)
	for _, v := range b.rowViews(op, a.APE) {
		args.ape_first, args.ape_count, args.ape_shift = C.int32_t(v.first), C.int32_t(v.count), C.uint32_t(v.shift)
		dispatch(b, op, compressStoreKernel, &args, columns(width, a.Rows, false), kv, score,
			slice(b, op, a.KV, a.Rows*width, reads), slice(b, op, a.Score, a.Rows*width, reads), v.bound())
	}
	if first >= entries {
		return
	}
	kv.access, score.access = reads, reads
	cache, skip := halves(b, op, a.Cache[first*a.Dim:], (entries-first)*a.Dim, writes)
	args.cache_skip = skip
	g := lines(entries-first, threadsFor(a.Dim, 256))
	g.shared = sharedFloats(a.Dim)
	dispatch(b, op, compressEntryKernel, &args, g, cache, kv, score,
		slice(b, op, a.Norm, a.Dim, reads), slice(b, op, a.Freqs, a.RotDim/2, reads))
}
