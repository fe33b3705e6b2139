//go:build cgo

package cpu

// #include "ops.h"
import "C"

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// StoreKV: see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	b.check(contract.StoreKV(ring, x, rows, cols, pos, ringRows))
	C.rm_op_store_kv(b.pool, u16(ring), f32(x), C.int64_t(rows), C.int64_t(cols), C.int64_t(pos), C.int64_t(ringRows))
}

// Compress: see kernels.CompressArgs. Entries are divided among the threads.
func (b *Backend) Compress(all ...kernels.CompressArgs) {
	for i := range all {
		b.compress(&all[i])
	}
}

func (b *Backend) compress(a *kernels.CompressArgs) {
	op := b.check(contract.Compress(a))
	b.done(op, C.rm_op_compress(b.pool, C.rm_compress{
		kv: f32(a.KV), score: f32(a.Score), ape: cWeight(a.APE), norm: f32(a.Norm), freqs: f32(a.Freqs),
		ring_kv: f32(a.RingKV), ring_score: f32(a.RingScore), cache: u16(a.Cache), latent: f32(a.Latent),
		rows: C.int64_t(a.Rows), pos: C.int64_t(a.Pos), ratio: C.int64_t(a.Ratio), dim: C.int64_t(a.Dim),
		rot_dim: C.int64_t(a.RotDim), ring_rows: C.int64_t(a.RingRows),
		overlap: flag(a.Overlap), hadamard: flag(a.Hadamard), eps: C.float(a.Eps),
	}))
}

// IndexTopK: see kernels.IndexArgs. A token that sees no more than TopK entries
// costs nothing; otherwise the scores are divided among the threads by entries
// and the selection by tokens.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	op := b.check(contract.IndexTopK(&a))
	if a.Freqs != nil {
		b.RoPE(a.Queries())
	}
	b.done(op, C.rm_op_index_top_k(b.pool, C.rm_index{
		q: f32(a.Q), head_weight: f32(a.HeadWeight), cache: u16(a.Cache), selected: i32(a.Selected),
		rows: C.int64_t(a.Rows), pos: C.int64_t(a.Pos), heads: C.int64_t(a.Heads), dim: C.int64_t(a.Dim),
		top_k: C.int64_t(a.TopK), ratio: C.int64_t(a.Ratio), entries: C.int64_t(len(a.Cache) / a.Dim),
		blocks: i32(a.Blocks), blocks_kept: C.int64_t(a.BlocksKept), block_size: C.int64_t(a.BlockSize), mask: flag(a.Mask),
		scale: C.float(a.Scale),
	}))
}

// Attend: see kernels.AttendArgs. An index in Selected that is not an entry of
// Compressed is misuse.
func (b *Backend) Attend(a kernels.AttendArgs) {
	op := b.check(contract.Attend(&a))
	contract.Selected(&a)
	if a.Ratio == 0 {
		a.Selected = nil
	}
	if a.RotateQ {
		b.RoPE(a.Queries())
	}
	b.done(op, C.rm_op_attend(b.pool, C.rm_attend{
		q: f32(a.Q), raw: u16(a.Raw), compressed: u16(a.Compressed), selected: i32(a.Selected), sinks: f32(a.Sinks), out: f32(a.Out),
		rows: C.int64_t(a.Rows), pos: C.int64_t(a.Pos), heads: C.int64_t(a.Heads), head_dim: C.int64_t(a.HeadDim),
		value_dim: C.int64_t(a.ValueDim), window: C.int64_t(a.Window), ring_rows: C.int64_t(a.RingRows), ratio: C.int64_t(a.Ratio), top_k: C.int64_t(a.TopK),
		scale: C.float(a.Scale),
	}))
	if a.Freqs != nil {
		b.RoPE(a.Back())
	}
}

// Route: see kernels.RouteArgs. A token without a row in the table, or an
// expert number in the table that does not exist, is misuse.
func (b *Backend) Route(a kernels.RouteArgs) {
	op := b.check(contract.Route(&a))
	contract.Table(&a)
	b.done(op, C.rm_op_route(b.pool, C.rm_route{
		logits: f32(a.Logits), bias: f32(a.Bias), table: i32(a.Table), tokens: i32(a.Tokens), ids: i32(a.IDs), weights: f32(a.Weights),
		rows: C.int64_t(a.Rows), experts: C.int64_t(a.Experts), used: C.int64_t(a.Used),
		score: C.int(a.Score), groups: C.int64_t(a.Groups), groups_used: C.int64_t(a.GroupsUsed), group_score: C.int(a.GroupScore),
		normalise: flag(a.Normalise), scale: C.float(a.Scale),
	}))
	if a.Lists.Offsets != nil {
		b.ExpertMask(a.Weights, a.IDs, a.Rows*a.Used, a.Start, a.End)
		b.ExpertCompact(a.Lists, a.IDs, a.Rows, a.Used, a.Experts, a.Start, a.End)
	}
}

// ExpertMask: see kernels.Backend.
func (b *Backend) ExpertMask(weights []float32, ids []int32, n, start, end int) {
	b.check(contract.ExpertMask(weights, ids, n))
	C.rm_op_expert_mask(f32(weights), i32(ids), C.int64_t(n), C.int64_t(start), C.int64_t(end))
}

// ExpertCompact: see kernels.Backend.
func (b *Backend) ExpertCompact(out kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	op := b.check(contract.ExpertCompact(out, ids, rows, used, experts, start, end))
	b.done(op, C.rm_op_expert_compact(b.pool, i32(out.Offsets), i32(out.Slots), i32(ids), C.int64_t(rows*used),
		C.int64_t(experts), C.int64_t(start), C.int64_t(end)))
}
