//go:build (darwin && cgo) || metalsim

package metal

// #include "shaders/attend.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	attendLibrary       = newLibrary("attend", "attend.h", "attend.metal")
	attendAnyKernel     = newKernel(attendLibrary, "attend_any")
	attendCombineKernel = newKernel(attendLibrary, "attend_combine")
	// by HeadDim
	attendKernels = map[int]*kernel{
		64:  newKernel(attendLibrary, "attend_64"),
		256: newKernel(attendLibrary, "attend_256"),
		512: newKernel(attendLibrary, "attend_512"),
	}
)

const (
	// attendGroups is the number of threadgroups that an Attend of few rows is
	// split into: some per core of a large GPU.
	attendGroups = 128
	// attendSpan is the minimum number of keys per split: below it, writing and
	// reading its sums costs as much as reading its keys.
	attendSpan = 64
)

// Attend: see kernels.Backend.
func (b *Backend) Attend(a kernels.AttendArgs) {
	const op = "Attend"
	b.live(op)
	c := contract.Attend(&a)
	args := C.struct_rmm_attend{
		pos: C.int32_t(a.Pos), heads: C.int32_t(a.Heads), dim: C.int32_t(a.HeadDim), window: C.int32_t(a.Window),
		ring_rows: C.int32_t(a.RingRows), ratio: C.int32_t(a.Ratio), splits: 1, scale: C.float(a.Scale),
	}
	n := a.Rows * a.Heads * a.HeadDim
	keys, entries := min(a.Window, a.Pos+a.Rows), 0 // maximum per row, and entries of Compressed visible to any row
	if a.Ratio > 0 {
		entries = (a.Pos + a.Rows) / a.Ratio
		keys += entries
		if a.Selected != nil {
			keys += a.TopK - entries
			entries = min(entries, len(a.Compressed)/a.HeadDim)
			args.top_k = C.int32_t(a.TopK)
		}
	}
	args.entries = C.int32_t(entries)
	q, out := b.operand(&c, "Q"), b.operand(&c, "Out")
	selected, sinks := b.operand(&c, "Selected"), b.operand(&c, "Sinks")
	raw, rawSkip := float16s(b.operand(&c, "Raw"))
	compressed, compressedSkip := float16s(b.operand(&c, "Compressed"))
	args.raw_skip, args.compressed_skip = rawSkip, compressedSkip

	k := attendKernels[a.HeadDim]
	if k == nil || a.Heads%8 != 0 || rawSkip != 0 || compressedSkip != 0 || !aligned(8, raw, compressed) {
		g := grid{groups: [3]int{a.Heads, a.Rows, 1}, threads: [3]int{C.RMM_ATTEND_ANY, 1, 1}, shared: sharedFloats(a.HeadDim)}
		dispatch(b, op, attendAnyKernel, &args, g, out, q, raw, compressed, selected, sinks, b.faults())
		return
	}
	blocks := above(a.Heads, C.RMM_ATTEND_HEADS)
	splits := attendSplits(a.Rows*blocks, keys)
	span := C.RMM_ATTEND_KEYS * above(above(keys, splits), C.RMM_ATTEND_KEYS)
	args.splits, args.span = C.int32_t(splits), C.int32_t(span)
	g := grid{groups: [3]int{blocks, splits, a.Rows}, threads: [3]int{32 * C.RMM_ATTEND_SLICES, 1, 1}}
	if splits == 1 {
		dispatch(b, op, k, &args, g, out, b.faults(), q, raw, compressed, selected, sinks, b.faults())
		return
	}
	memory := b.scratch(op, splits*(n+2*a.Rows*a.Heads))
	if memory == nil {
		return
	}
	sums, parts := between(b, op, memory, splits*n, writes), between(b, op, memory[splits*n:], 2*splits*a.Rows*a.Heads, writes)
	dispatch(b, op, k, &args, g, sums, parts, q, raw, compressed, selected, sinks, b.faults())
	sums.access, parts.access = reads, reads
	g = grid{groups: [3]int{a.Heads, a.Rows, 1}, threads: [3]int{threadsFor(a.HeadDim, 128), 1, 1}}
	dispatch(b, op, attendCombineKernel, &args, g, out, sums, parts, sinks)
}

// attendSplits is the number of splits of the keys of a row, with `groups`
// threadgroups per split.
func attendSplits(groups, keys int) int {
	if groups == 0 {
		return 1
	}
	return max(1, min(attendGroups/groups, above(keys, attendSpan), C.RMM_ATTEND_SPLITS))
}
