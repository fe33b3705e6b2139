//go:build cgo

package gpu

// #include "args/index.h"
import "C"

import (
	"math"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

var (
	indexLibrary         = "index"
	indexScoresKernel    = newKernel(indexLibrary, "index_scores")
	indexScores128Kernel = newKernel(indexLibrary, "index_scores_128")
	indexSelectKernel    = newKernel(indexLibrary, "index_select")
	indexBlocksKernel    = newKernel(indexLibrary, "index_blocks")
	indexMaskKernel      = newKernel(indexLibrary, "index_mask")
)

// indexScores is the maximum number of scores in memory. Rows are taken in batches,
// because 512 rows of a million tokens would need half a gigabyte, and so that a dispatch
// has bounded work (64 heads of 128: half a second at the rates of work.go).
const indexScores = 8 << 20

// IndexTopK: see kernels.Backend.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	c := b.check(contract.IndexTopK(&a))
	entries := len(a.Cache) / a.Dim
	if seen := min((a.Pos+a.Rows)/a.Ratio, entries); a.Freqs != nil && !b.rotatesIndex(&c, &a, seen) {
		b.RoPE(a.Queries())
		a.Freqs = nil
	}
	for row := 0; row < a.Rows; {
		// The last row of a batch sees the most entries.
		seen := func(n int) int { return min((a.Pos+row+n)/a.Ratio, entries) }
		n := a.Rows - row
		for n > 1 && n*seen(n) > indexScores {
			n = (n + 1) / 2
		}
		b.indexBatch(&c, &a, row, n, seen(n), entries)
		row += n
	}
}

// indexRotates is the most entries of all rows whose scores' threadgroups rotate the queries
// themselves: 128 threadgroups of a tile. More would compute longer than a dispatch waits.
const indexRotates = 4096

// rotatesIndex reports whether IndexTopK can leave the queries to index_scores_128, for rows that see
// at most so many entries.
func (b *Backend) rotatesIndex(c *contract.Call, a *kernels.IndexArgs, seen int) bool {
	return !b.info.Packed && a.Rows*seen <= indexRotates && b.indexTiles(a, b.operand(c, "Cache")) && aligned(16, b.operand(c, "Q"))
}

// indexTiles reports whether index_scores_128 has the shape.
func (b *Backend) indexTiles(a *kernels.IndexArgs, cache bind) bool {
	return a.Dim == C.RMG_INDEX_DIM && a.Heads%8 == 0 && a.Heads <= C.RMG_INDEX_HEADS && aligned(8, cache)
}

// indexBatch selects for n rows from `row` on, which see at most `most` entries.
func (b *Backend) indexBatch(c *contract.Call, a *kernels.IndexArgs, row, n, most, entries int) {
	op := c.Op
	args := C.struct_rmg_index{
		pos: C.int32_t(a.Pos + row), ratio: C.int32_t(a.Ratio), heads: C.int32_t(a.Heads), dim: C.int32_t(a.Dim),
		top_k: C.int32_t(a.TopK), entries: C.int32_t(entries), most: C.int32_t(most), scale: C.float(a.Scale), per: 1,
		kept: C.int32_t(a.BlocksKept), block_size: C.int32_t(a.BlockSize),
	}
	scores := bind{b.faults().binding, 0, constant, 0} // no scores where all entries are taken
	blocks := 0                                        // with scores
	if a.Blocks != nil && most > a.BlocksKept*a.BlockSize {
		blocks = above(most, a.BlockSize)
	}
	var memory []float32
	if most > a.TopK {
		memory = b.scratch(op, n*(most+blocks))
		if memory == nil {
			return
		}
		scores = between(b, op, memory, n*most, writes)
		q := b.part(c, "Q", row*a.Heads*a.Dim, n*a.Heads*a.Dim)
		q.access = reads
		positions, freqs := b.faults(), b.faults()
		if a.Freqs != nil {
			positions, freqs = b.part(c, "Positions", row, n), b.operand(c, "Freqs")
			args.rotated, args.q_pairs, args.hadamard_scale = 1, C.int32_t(a.RotDim/2), C.float(1/math.Sqrt(float64(a.Dim)))
		}
		weights := b.part(c, "HeadWeight", row*a.Heads, n*a.Heads)
		cache, skip := float16s(b.part(c, "Cache", 0, most*a.Dim))
		args.cache_skip = skip
		k, g := indexScoresKernel, columns(most, n, false)
		if skip == 0 && b.indexTiles(a, cache) {
			// Long contexts: more tiles per threadgroup amortize loading the queries.
			args.tiles = C.int32_t(min(8, max(1, n*most/(C.RMG_INDEX_TILE*1024))))
			each := C.RMG_INDEX_TILE * int(args.tiles)
			k = indexScores128Kernel
			g = grid{groups: [3]int{above(most, each), n, 1}, threads: [3]int{128, 1, 1}}
		}
		g.work.flops = 2 * float64(n) * float64(most) * float64(a.Heads*a.Dim)
		dispatch(b, op, k, &args, g, scores, q, weights, cache, positions, freqs)
		scores.access = reads
	}
	if a.Blocks != nil && !a.Mask {
		b.keepBlocks(c, a, args, row, n, memory, blocks)
	} else if blocks > 0 {
		masked := scores
		masked.access = updates
		dispatch(b, op, indexMaskKernel, &args, columns(most, n, false), masked, b.part(c, "Blocks", row*a.BlocksKept, n*a.BlocksKept))
	}
	threads := 256
	if most > 16384 {
		threads = min(1024, b.pipelines[indexSelectKernel.number].threads/32*32)
	}
	dispatch(b, op, indexSelectKernel, &args, lines(n, threads),
		b.part(c, "Selected", row*a.TopK, n*a.TopK), scores)
}

// keepBlocks selects the blocks that n rows from `row` on keep. memory has the scores of the
// entries and room for those of as many blocks; there are none where all blocks are kept.
func (b *Backend) keepBlocks(c *contract.Call, a *kernels.IndexArgs, args C.struct_rmg_index, row, n int, memory []float32, blocks int) {
	best := bind{b.faults().binding, 0, constant, 0}
	if blocks > 0 {
		entries := n * int(args.most)
		best = between(b, c.Op, memory[entries:], n*blocks, writes)
		dispatch(b, c.Op, indexBlocksKernel, &args, columns(blocks, n, false), best, between(b, c.Op, memory, entries, reads))
		best.access = reads
	}
	args.per, args.top_k = args.block_size, args.kept
	dispatch(b, c.Op, indexSelectKernel, &args, lines(n, 256), b.part(c, "Blocks", row*a.BlocksKept, n*a.BlocksKept), best)
}
