//go:build cgo

package gpu

// #include "args/attend.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	attendLibrary       = "attend"
	attendAnyKernel     = newKernel(attendLibrary, "attend_any")
	attendCombineKernel = newKernel(attendLibrary, "attend_combine")
	// by HeadDim
	attendKernels = map[int]*kernel{
		64:  newKernel(attendLibrary, "attend_64"),
		256: newKernel(attendLibrary, "attend_256"),
		512: newKernel(attendLibrary, "attend_512"),
		576: newKernel(attendLibrary, "attend_576"),
	}
)

// attendSpan is the minimum number of keys per split, because below it writing and
// reading the sums of a split costs as much as reading its keys.
const attendSpan = 64

// Attend: see kernels.Backend. Very many rows are taken in pieces, so that no dispatch is
// too long for the watchdog; each row has the bits that it has alone.
func (b *Backend) Attend(a kernels.AttendArgs) {
	c := b.check(contract.Attend(&a))
	blocks := above(a.Heads, C.RMG_ATTEND_HEADS)
	turned := a.Freqs == nil
	splits := b.attendSplits(a.Rows*blocks, attendKeys(&a))
	if a.RotateQ && !(splits > 1 && b.rotatesQueries(&c, &a)) {
		b.RoPE(a.Queries())
		a.RotateQ, a.NormQ = false, false
	}
	each := a.Rows
	if splits == 1 {
		each = b.pieceRows(attendWork(&a), a.Rows, above(b.info.AttendGroups, blocks))
	}
	for row := 0; row == 0 || row < a.Rows; row += each {
		piece := a
		piece.Pos, piece.Rows = a.Pos+row, min(each, a.Rows-row)
		piece.Q, piece.Out = a.Q[row*a.Heads*a.HeadDim:], a.Out[row*a.Heads*a.ValueDim:]
		if a.Freqs != nil {
			piece.Positions = a.Positions[row:]
		}
		if a.Ratio > 0 && a.Selected != nil {
			piece.Selected = a.Selected[row*a.TopK:]
		}
		turned = b.attend(&piece, splits) || turned
		if each == 0 {
			break
		}
	}
	if !turned {
		back := a.Back()
		out := b.operand(&c, "Out")
		out.access = updates
		b.rope(c.Op, &back, out, b.operand(&c, "Positions"), b.operand(&c, "Freqs"))
	}
}

// attendTiles reports whether attend_tiles has the shape.
func (b *Backend) attendTiles(c *contract.Call, a *kernels.AttendArgs) bool {
	raw, compressed := b.operand(c, "Raw"), b.operand(c, "Compressed")
	return attendKernels[a.HeadDim] != nil && a.Heads%8 == 0 && a.ValueDim%8 == 0 && aligned(8, raw, compressed)
}

// rotatesQueries reports whether Attend can leave the queries to attend_tiles, whose threadgroups each
// rotate those of their heads. That is for few rows, where a dispatch waits longer than they compute.
func (b *Backend) rotatesQueries(c *contract.Call, a *kernels.AttendArgs) bool {
	return !b.info.Packed && b.attendTiles(c, a) && aligned(16, b.operand(c, "Q"))
}

// attendKeys is the maximum number of keys of a row.
func attendKeys(a *kernels.AttendArgs) int {
	keys := a.Pos + a.Rows
	switch {
	case a.Window > 0:
		keys = min(keys, a.Window)
	case a.RingRows == 0:
		keys = 0
	}
	switch {
	case a.Ratio > 0 && a.Selected != nil:
		keys += a.TopK
	case a.Ratio > 0:
		keys += (a.Pos + a.Rows) / a.Ratio
	}
	return keys
}

// attendWork is the work of an Attend: each query times each key, and each weight times
// each value, which is the beginning of the key.
func attendWork(a *kernels.AttendArgs) work {
	return work{flops: 2 * float64(a.Rows*a.Heads*(a.HeadDim+a.ValueDim)) * float64(attendKeys(a))}
}

// attend encodes an Attend with its keys divided into splits. It reports whether Out is rotated
// too, where it is put together.
func (b *Backend) attend(a *kernels.AttendArgs, splits int) (turned bool) {
	c := contract.Attend(a)
	args := C.struct_rmg_attend{
		pos: C.int32_t(a.Pos), heads: C.int32_t(a.Heads), dim: C.int32_t(a.HeadDim), value: C.int32_t(a.ValueDim),
		window: C.int32_t(a.Window), sunk: flag(a.Sinks != nil), ring_rows: C.int32_t(a.RingRows), ratio: C.int32_t(a.Ratio), splits: 1, scale: C.float(a.Scale),
	}
	n := a.Rows * a.Heads * a.ValueDim
	keys, entries := attendKeys(a), 0 // entries of Compressed visible to any row
	if a.Ratio > 0 {
		entries = (a.Pos + a.Rows) / a.Ratio
		if a.Selected != nil {
			entries = min(entries, len(a.Compressed)/a.HeadDim)
			args.top_k = C.int32_t(a.TopK)
		}
	}
	args.entries = C.int32_t(entries)
	q, out := b.operand(&c, "Q"), b.operand(&c, "Out")
	q.access = reads
	selected, sinks := b.operand(&c, "Selected"), b.operand(&c, "Sinks")
	raw, rawSkip := float16s(b.operand(&c, "Raw"))
	compressed, compressedSkip := float16s(b.operand(&c, "Compressed"))
	args.raw_skip, args.compressed_skip = rawSkip, compressedSkip

	if !b.attendTiles(&c, a) {
		g := grid{groups: [3]int{a.Heads, a.Rows, 1}, threads: [3]int{C.RMG_ATTEND_ANY, 1, 1}, shared: sharedFloats(a.ValueDim), work: attendWork(a)}
		dispatch(b, c.Op, attendAnyKernel, &args, g, out, q, raw, compressed, selected, sinks, b.faults())
		return false
	}
	k, blocks := attendKernels[a.HeadDim], above(a.Heads, C.RMG_ATTEND_HEADS)
	span := C.RMG_ATTEND_KEYS * above(above(keys, splits), C.RMG_ATTEND_KEYS)
	args.splits, args.span = C.int32_t(splits), C.int32_t(span)
	g := grid{groups: [3]int{blocks, splits, a.Rows}, threads: [3]int{32 * C.RMG_ATTEND_SLICES, 1, 1}, work: attendWork(a)}
	if splits == 1 {
		dispatch(b, c.Op, k, &args, g, out, b.faults(), q, raw, compressed, selected, sinks, b.faults(), b.faults(), b.faults())
		return false
	}
	memory := b.scratch(c.Op, splits*(n+2*a.Rows*a.Heads))
	if memory == nil {
		return true
	}
	sums, parts := between(b, c.Op, memory, splits*n, writes), between(b, c.Op, memory[splits*n:], 2*splits*a.Rows*a.Heads, writes)
	positions, freqs := b.operand(&c, "Positions"), b.operand(&c, "Freqs")
	if a.RotateQ {
		args.rotated, args.normed, args.q_pairs, args.eps = 1, flag(a.NormQ), C.int32_t(a.RotDim/2), C.float(a.Eps)
	}
	dispatch(b, c.Op, k, &args, g, sums, parts, q, raw, compressed, selected, sinks, b.faults(), positions, freqs)
	sums.access, parts.access = reads, reads
	g = grid{groups: [3]int{a.Heads, a.Rows, 1}, threads: [3]int{threadsFor(a.ValueDim, 128), 1, 1}}
	if a.Freqs != nil {
		args.pairs = C.int32_t(a.RotDim / 2)
	}
	dispatch(b, c.Op, attendCombineKernel, &args, g, out, sums, parts, sinks, selected, positions, freqs)
	return true
}

// attendSplits is the number of splits of the keys of a row, with `groups`
// threadgroups per split.
func (b *Backend) attendSplits(groups, keys int) int {
	if groups == 0 {
		return 1
	}
	if b.info.RowsAgree { // the kernel divides the keys of a row by their number alone: splits are its spans
		if groups >= b.info.AttendGroups {
			return 1
		}
		return max(1, min(above(keys, C.RMG_ATTEND_SPAN), C.RMG_ATTEND_SPLITS))
	}
	return max(1, min(b.info.AttendGroups/groups, above(keys, attendSpan), C.RMG_ATTEND_SPLITS))
}
