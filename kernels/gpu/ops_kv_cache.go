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

// Compress: see kernels.Backend. One dispatch stores the projections of two compressors that get
// the same tokens, then one for each computes the entries that they complete.
func (b *Backend) Compress(all ...kernels.CompressArgs) {
	for len(all) > 0 {
		n := 1
		if len(all) > 1 && all[0].Pos == all[1].Pos && all[0].Rows == all[1].Rows {
			n = C.RMG_COMPRESSORS
		}
		b.compress(all[:n])
		all = all[n:]
	}
}

// compress encodes compressors that get the same tokens.
func (b *Backend) compress(some []kernels.CompressArgs) {
	var calls [C.RMG_COMPRESSORS]contract.Call
	var views [C.RMG_COMPRESSORS][]view // of the rows of APE; one that binds nothing without APE
	most := 0
	for i := range some {
		a := &some[i]
		calls[i] = b.check(contract.Compress(a))
		views[i] = []view{{binding: b.faults().binding, count: a.Ratio}}
		if a.APE.Exists() {
			views[i] = b.rowViews(calls[i].Op, a.APE)
		}
		most = max(most, len(views[i]))
	}
	if most == 1 {
		b.compressStore(some, calls[:len(some)], views[:len(some)])
	} else {
		for i := range some {
			for _, v := range views[i] {
				b.compressStore(some[i:i+1], calls[i:i+1], [][]view{{v}})
			}
		}
	}
	for i := range some {
		b.compressEntries(&calls[i], &some[i])
	}
}

// compressStore encodes the stores of some compressors, of the tokens with a row of APE in the
// first view of each.
func (b *Backend) compressStore(some []kernels.CompressArgs, calls []contract.Call, views [][]view) {
	args := C.struct_rmg_compress_store{pos: C.int32_t(some[0].Pos)}
	var buffers []bind
	widest := 0
	for i := range C.RMG_COMPRESSORS {
		if i >= len(some) { // not used
			buffers = append(buffers, b.faults(), b.faults(), b.faults(), b.faults(), b.faults())
			continue
		}
		a, c, v := &some[i], &calls[i], views[i][0]
		widest = max(widest, a.Width())
		args.ratio[i], args.ring_rows[i], args.width[i] = C.int32_t(a.Ratio), C.int32_t(a.RingRows), C.int32_t(a.Width())
		args.ape_type[i], args.ape_row_bytes[i] = C.RMG_APE_NONE, C.uint32_t(a.APE.Stride())
		if a.APE.Exists() {
			args.ape_type[i] = apeTypes[a.APE.Type]
		}
		args.ape_first[i], args.ape_count[i], args.ape_shift[i] = C.int32_t(v.first), C.int32_t(v.count), C.uint32_t(v.shift)
		buffers = append(buffers, b.operand(c, "RingKV"), b.operand(c, "RingScore"), b.operand(c, "KV"), b.operand(c, "Score"), v.bound())
	}
	g := columns(widest, some[0].Rows, false)
	g.groups[2] = len(some)
	dispatch(b, calls[0].Op, compressStoreKernel, &args, g, buffers...)
}

// compressEntries encodes the entries that the tokens complete.
func (b *Backend) compressEntries(c *contract.Call, a *kernels.CompressArgs) {
	first, entries := a.Pos/a.Ratio, (a.Pos+a.Rows)/a.Ratio
	if first >= entries {
		return
	}
	args := C.struct_rmg_compress{
		pos: C.int32_t(a.Pos), ratio: C.int32_t(a.Ratio), ring_rows: C.int32_t(a.RingRows),
		dim: C.int32_t(a.Dim), width: C.int32_t(a.Width()), pairs: C.int32_t(a.RotDim / 2),
		overlap: flag(a.Overlap), hadamard: flag(a.Hadamard), first: C.int32_t(first),
		eps: C.float(a.Eps), hadamard_scale: C.float(1 / math.Sqrt(float64(a.Dim))),
	}
	kv, score := b.operand(c, "RingKV"), b.operand(c, "RingScore")
	kv.access, score.access = reads, reads
	g := lines(entries-first, threadsFor(a.Dim, 256))
	g.shared = sharedFloats(a.Dim)
	if a.Latent != nil {
		dispatch(b, c.Op, compressLatentKernel, &args, g, b.operand(c, "Latent"), kv, score, b.operand(c, "Norm"))
		return
	}
	cache, skip := float16s(b.operand(c, "Cache"))
	args.cache_skip = skip
	dispatch(b, c.Op, compressEntryKernel, &args, g, cache, kv, score, b.operand(c, "Norm"), b.operand(c, "Freqs"))
}
