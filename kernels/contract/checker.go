package contract

import "ringmaster/kernels"

// Checker is a backend whose ops compute nothing: each panics with a
// *kernels.Misuse where the op of Backend would, and else leaves memory as it
// is. A model that runs a step on it learns whether its weights and shapes meet
// the contract of every op. Memory and types of weights are those of Backend.
type Checker struct{ kernels.Backend }

// Submit does nothing.
func (Checker) Submit() {}

// Flush does nothing.
func (Checker) Flush() error { return nil }

// Embed is checked; see kernels.Backend.
func (Checker) Embed(dst []float32, w kernels.Weight, ids []int32) { Embed(dst, w, ids) }

// MatMul is checked; see kernels.Backend.
func (Checker) MatMul(x []float32, rows int, products ...kernels.Product) {
	MatMul(x, rows, products...)
}

// MatMulGrouped is checked; see kernels.Backend.
func (Checker) MatMulGrouped(dst, x []float32, rows int, w kernels.Weight) {
	MatMulGrouped(dst, x, rows, w)
}

// RMSNorm is checked; see kernels.Backend.
func (Checker) RMSNorm(dst, x, weight []float32, rows, cols int, _ float32) {
	RMSNorm(dst, x, weight, rows, cols)
}

// LayerNorm is checked; see kernels.Backend.
func (Checker) LayerNorm(dst, x, weight, bias []float32, rows, cols int, _ float32) {
	LayerNorm(dst, x, weight, bias, rows, cols)
}

// RoPE is checked; see kernels.Backend.
func (Checker) RoPE(a kernels.RoPEArgs) { RoPE(&a) }

// Hadamard is checked; see kernels.Backend.
func (Checker) Hadamard(x []float32, rows, dim int) { Hadamard(x, rows, dim) }

// HCInit is checked; see kernels.Backend.
func (Checker) HCInit(h, x []float32, rows, streams, cols int) { HCInit(h, x, rows, streams, cols) }

// HCMix is checked; see kernels.Backend.
func (Checker) HCMix(a kernels.HCMixArgs) { HCMix(&a) }

// HCCollapse is checked; see kernels.Backend.
func (Checker) HCCollapse(dst, h, pre []float32, rows, streams, cols int) {
	HCCollapse(dst, h, pre, rows, streams, cols)
}

// HCExpand is checked; see kernels.Backend.
func (Checker) HCExpand(h, y, post, comb []float32, rows, streams, cols int) {
	HCExpand(h, y, post, comb, rows, streams, cols)
}

// HCHead is checked; see kernels.Backend.
func (Checker) HCHead(a kernels.HCHeadArgs) { HCHead(&a) }

// StoreKV is checked; see kernels.Backend.
func (Checker) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	StoreKV(ring, x, rows, cols, pos, ringRows)
}

// Compress is checked; see kernels.Backend.
func (Checker) Compress(a kernels.CompressArgs) { Compress(&a) }

// IndexTopK is checked; see kernels.Backend.
func (Checker) IndexTopK(a kernels.IndexArgs) { IndexTopK(&a) }

// Attend is checked; see kernels.Backend.
func (Checker) Attend(a kernels.AttendArgs) { Attend(&a) }

// Route is checked; see kernels.Backend.
func (Checker) Route(a kernels.RouteArgs) { Route(&a) }

// ExpertMask is checked; see kernels.Backend.
func (Checker) ExpertMask(weights []float32, ids []int32, n, _, _ int) { ExpertMask(weights, ids, n) }

// ExpertCompact is checked; see kernels.Backend.
func (Checker) ExpertCompact(groups kernels.ExpertGroups, ids []int32, rows, used, experts, start, end int) {
	ExpertCompact(groups, ids, rows, used, experts, start, end)
}

// ExpertGateUp is checked; see kernels.Backend.
func (Checker) ExpertGateUp(mid, x []float32, gate, up kernels.Weight, _ float32, a kernels.ExpertArgs) {
	ExpertGateUp(mid, x, gate, up, &a)
}

// ExpertDown is checked; see kernels.Backend.
func (Checker) ExpertDown(dst, mid []float32, down kernels.Weight, a kernels.ExpertArgs) {
	ExpertDown(dst, mid, down, &a)
}

// SumSlots is checked; see kernels.Backend.
func (Checker) SumSlots(dst, slots []float32, rows, used, cols int, _ bool) {
	SumSlots(dst, slots, rows, used, cols)
}

// SwiGLU is checked; see kernels.Backend.
func (Checker) SwiGLU(dst, gate, up []float32, n int, _ float32) { SwiGLU(dst, gate, up, n) }

// Add is checked; see kernels.Backend.
func (Checker) Add(dst, x, y []float32, n int) { Add(dst, x, y, n) }

// ToFloat16 is checked; see kernels.Backend.
func (Checker) ToFloat16(dst []uint16, x []float32, n int) { ToFloat16(dst, x, n) }

// FromFloat16 is checked; see kernels.Backend.
func (Checker) FromFloat16(dst []float32, x []uint16, n int) { FromFloat16(dst, x, n) }

// Clear is checked; see kernels.Backend.
func (Checker) Clear(x []float32, n int) { Clear(x, n) }

// Gather is checked; see kernels.Backend.
func (Checker) Gather(dst, x []float32, rows []int32, cols int) { Gather(dst, x, rows, cols) }

// CopyColumns is checked; see kernels.Backend.
func (Checker) CopyColumns(dst, x []float32, rows, cols, dstCols, xCols int) {
	CopyColumns(dst, x, rows, cols, dstCols, xCols)
}
