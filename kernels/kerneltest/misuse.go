package kerneltest

import (
	"testing"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// misuse calls ops with arguments that break the contract: each must panic with
// a *kernels.Misuse that names the op, before anything is written.
func misuse(t *testing.T, open Open) {
	m := newMem(t, open(t), "misuse")
	defer m.close()
	b := m.b
	x, y := place(m, make([]float32, 64)), place(m, make([]float32, 64))
	h, ids := place(m, make([]uint16, 64)), place(m, make([]int32, 64))
	w := m.plain(gguf.F32, 4, 8, make([]float32, 32))
	short := w
	short.Data = w.Data[:len(w.Data)-1]
	scaled := w
	scaled.Scales = x[:2]
	calls := []struct {
		op, why string
		call    func()
	}{
		{"RMSNorm", "short", func() { b.RMSNorm(x, y, nil, 9, 8, 1e-6) }},
		{"RMSNorm", "half overlapping", func() { b.RMSNorm(x[1:], x, nil, 1, 8, 1e-6) }},
		{"RMSNorm", "negative rows", func() { b.RMSNorm(x, y, nil, -1, 8, 1e-6) }},
		{"LayerNorm", "no bias", func() { b.LayerNorm(x, x, y, nil, 1, 8, 1e-6) }},
		{"LayerNorm", "out overlaps weight", func() { b.LayerNorm(y, x, y, y[8:], 1, 8, 1e-6) }},
		{"Hadamard", "no power of two", func() { b.Hadamard(x, 1, 12) }},
		{"MatMul", "short data", func() { b.MatMul(x, 1, kernels.Product{W: short, Out: y}) }},
		{"MatMul", "no weight", func() { b.MatMul(x, 1, kernels.Product{Out: y}) }},
		{"MatMul", "short x", func() { b.MatMul(x, 9, kernels.Product{W: w, Out: y}) }},
		{"MatMul", "two scales of a matrix", func() { b.MatMul(x, 1, kernels.Product{W: scaled, Out: y}) }},
		{"MatMul", "gate and up of different shapes", func() { b.MatMul(x, 1, kernels.Product{W: w, Out: y, Up: w.RowRange(1, 4), UpOut: y[8:]}) }},
		{"MatMul", "out overlaps that of up", func() { b.MatMul(x, 1, kernels.Product{W: w, Out: y, Up: w, UpOut: y[3:]}) }},
		{"NormMatMul", "no products", func() { b.NormMatMul(x, y, 1e-6, 1) }},
		{"NormMatMul", "short weight", func() { b.NormMatMul(x, y[:7], 1e-6, 1, kernels.Product{W: w, Out: y[8:]}) }},
		{"Embed", "scales", func() { b.Embed(y, scaled, ids[:1]) }},
		{"RoPE", "odd RotDim", func() {
			b.RoPE(kernels.RoPEArgs{X: x, Pos: ids, Freqs: y, Rows: 1, Heads: 1, HeadDim: 8, RotDim: 3})
		}},
		{"RoPE", "a ring for two heads", func() {
			b.RoPE(kernels.RoPEArgs{X: x, Pos: ids, Freqs: y, Rows: 1, Heads: 2, HeadDim: 4, RotDim: 4, Ring: make([]uint16, 8), RingRows: 2})
		}},
		{"RoPE", "a transform of an odd width", func() {
			b.RoPE(kernels.RoPEArgs{X: x, Pos: ids, Freqs: y, Rows: 1, Heads: 1, HeadDim: 6, RotDim: 4, Hadamard: true})
		}},
		{"RoPE", "negative magnitude", func() {
			b.RoPE(kernels.RoPEArgs{X: x, Pos: ids, Freqs: y, Rows: 1, Heads: 1, HeadDim: 8, RotDim: 4, Magnitude: -1})
		}},
		{"Attend", "short ring", func() {
			b.Attend(kernels.AttendArgs{Q: x, Raw: h, Sinks: y, Out: y[8:], Rows: 2, Heads: 1, HeadDim: 8, ValueDim: 8, Window: 4, RingRows: 4})
		}},
		{"Attend", "values wider than rows", func() {
			b.Attend(kernels.AttendArgs{Q: x, Raw: h, Out: y[8:], Rows: 1, Heads: 1, HeadDim: 8, ValueDim: 9, RingRows: 4})
		}},
		{"Attend", "short ring of all positions", func() {
			b.Attend(kernels.AttendArgs{Q: x, Raw: h, Out: y[8:], Rows: 1, Pos: 4, Heads: 1, HeadDim: 8, ValueDim: 8, RingRows: 4})
		}},
		{"Attend", "a window without raw rows", func() {
			b.Attend(kernels.AttendArgs{Q: x, Compressed: h, Out: y[8:], Rows: 1, Heads: 1, HeadDim: 8, ValueDim: 8, Window: 4, Ratio: 1})
		}},
		{"Attend", "blocks without raw rows", func() {
			b.Attend(kernels.AttendArgs{Q: x, Compressed: h, Out: y[8:], Rows: 1, Pos: 3, Heads: 1, HeadDim: 8, ValueDim: 8, Ratio: 4})
		}},
		{"Attend", "queries rotated without frequencies", func() {
			b.Attend(kernels.AttendArgs{Q: x, Raw: h, Out: y[8:], Rows: 1, Heads: 1, HeadDim: 8, ValueDim: 8, RingRows: 4, RotateQ: true})
		}},
		{"IndexTopK", "queries transformed in an odd width", func() {
			b.IndexTopK(kernels.IndexArgs{
				Q: x, HeadWeight: y, Cache: h, Selected: ids, Freqs: y, Positions: ids[8:], Rows: 1, Heads: 1, Dim: 6, RotDim: 4, TopK: 1, Ratio: 1,
			})
		}},
		{"Route", "groups with too few experts", func() {
			b.Route(kernels.RouteArgs{Logits: x, IDs: ids, Weights: y, Rows: 1, Experts: 8, Used: 3, Groups: 4, GroupsUsed: 1})
		}},
		{"Route", "uneven groups", func() {
			b.Route(kernels.RouteArgs{Logits: x, IDs: ids, Weights: y, Rows: 1, Experts: 8, Used: 1, Groups: 3, GroupsUsed: 1})
		}},
		{"Route", "lists of a range beyond the experts", func() {
			b.Route(kernels.RouteArgs{
				Logits: x, IDs: ids, Weights: y, Rows: 1, Experts: 8, Used: 1, Lists: kernels.ExpertGroups{Offsets: ids[8:], Slots: ids[32:]}, End: 9,
			})
		}},
		{"SumExact", "too many terms", func() { b.SumExact(make([]int64, 1), x, 1, 256, 0, false) }},
		{"SumExact", "short sums", func() { b.SumExact(make([]int64, 7), x, 1, 1, 8, true) }},
		{"RoundSums", "short", func() { b.RoundSums(x, make([]int64, 7), 8) }},
		{"CopyColumns", "more columns than a row has", func() { b.CopyColumns(x, y, 1, 5, 8, 4) }},
		{"StoreKV", "more rows than slots", func() { b.StoreKV(h, x, 3, 8, 0, 2) }},
		{"HCMix", "wrong shape of Fn", func() {
			b.HCMix(kernels.HCMixArgs{
				H: x, Fn: w, Base: y, Scale: y, Pre: y[8:], Post: y[16:], Comb: y[24:], X: x[8:], Weights: y[16:], Norm: y, Rows: 1, Streams: 2, Cols: 4, Iterations: 1,
			})
		}},
		{"ExpertCompact", "range beyond the experts", func() {
			b.ExpertCompact(kernels.ExpertGroups{Offsets: ids[8:], Slots: ids[32:]}, ids, 1, 2, 4, 1, 5)
		}},
		{"ExpertDown", "a further row without a sum", func() {
			b.ExpertDown(x[:8], y, w, kernels.ExpertArgs{
				Groups: kernels.ExpertGroups{Offsets: ids, Slots: ids[8:]}, Weights: y[32:], Rows: 1, Used: 1, Experts: 1, End: 1, Plus: y[40:],
			})
		}},
		{"ToFloat16", "short", func() { b.ToFloat16(h[:7], x, 8) }},
		{"FromFloat16", "short", func() { b.FromFloat16(x, h[:7], 8) }},
		{"ExpertDown", "range beyond the experts", func() {
			b.ExpertDown(x[:8], y, w, kernels.ExpertArgs{
				Groups: kernels.ExpertGroups{Offsets: ids, Slots: ids[8:]}, Weights: y[8:], Rows: 1, Used: 1, Experts: 1, End: 2,
			})
		}},
	}
	for _, c := range calls {
		RequireMisuse(t, c.op, c.why, c.call)
	}
	m.checkGuards()
}
