package deferred

import (
	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// ringOut maps a ring of which the rows of positions pos..pos+rows-1 are
// written; the others keep what they hold.
func ringOut[T float32 | uint16](e *encoder, name string, ring []T, pos, rows, cols, ringRows int) []T {
	first := pos % ringRows
	end := min(first+rows, ringRows)
	y := out(e, name, ring, first*cols, end*cols)
	out(e, name, ring, 0, (first+rows-end)*cols) // what is left goes round
	return y
}

// StoreKV is encoded; see kernels.Backend.
func (b *Backend) StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	contract.StoreKV(ring, x, rows, cols, pos, ringRows)
	e := b.encode("StoreKV")
	ix := in(e, "x", x, rows*cols)
	o := ringOut(e, "ring", ring, pos, rows, cols, ringRows)
	e.run(func() { b.inner.StoreKV(o, ix, rows, cols, pos, ringRows) })
}

// Compress is encoded; see kernels.Backend.
func (b *Backend) Compress(a kernels.CompressArgs) {
	contract.Compress(&a)
	e, width := b.encode("Compress"), contract.Width(&a)
	a.KV, a.Score = in(e, "KV", a.KV, a.Rows*width), in(e, "Score", a.Score, a.Rows*width)
	a.Norm, a.Freqs = in(e, "Norm", a.Norm, a.Dim), in(e, "Freqs", a.Freqs, a.RotDim/2)
	in(e, "RingKV", a.RingKV, a.RingRows*width)
	in(e, "RingScore", a.RingScore, a.RingRows*width)
	a.RingKV = ringOut(e, "RingKV", a.RingKV, a.Pos, a.Rows, width, a.RingRows)
	a.RingScore = ringOut(e, "RingScore", a.RingScore, a.Pos, a.Rows, width, a.RingRows)
	a.Cache = out(e, "Cache", a.Cache, a.Pos/a.Ratio*a.Dim, (a.Pos+a.Rows)/a.Ratio*a.Dim)
	e.run(func() { b.inner.Compress(a) })
}

// IndexTopK is encoded; see kernels.Backend.
func (b *Backend) IndexTopK(a kernels.IndexArgs) {
	contract.IndexTopK(&a)
	e := b.encode("IndexTopK")
	a.Q, a.HeadWeight = in(e, "Q", a.Q, a.Rows*a.Heads*a.Dim), in(e, "HeadWeight", a.HeadWeight, a.Rows*a.Heads)
	a.Cache = in(e, "Cache", a.Cache, (a.Pos+a.Rows)/a.Ratio*a.Dim)
	a.Selected = out(e, "Selected", a.Selected, 0, a.Rows*a.TopK)
	e.run(func() { b.inner.IndexTopK(a) })
}

// Attend is encoded; see kernels.Backend.
func (b *Backend) Attend(a kernels.AttendArgs) {
	contract.Attend(&a)
	e := b.encode("Attend")
	n := a.Rows * a.Heads * a.HeadDim
	a.Q, a.Sinks = in(e, "Q", a.Q, n), in(e, "Sinks", a.Sinks, a.Heads)
	a.Raw = in(e, "Raw", a.Raw, a.RingRows*a.HeadDim)
	if a.Ratio > 0 {
		a.Compressed = in(e, "Compressed", a.Compressed, (a.Pos+a.Rows)/a.Ratio*a.HeadDim)
		a.Selected = in(e, "Selected", a.Selected, a.Rows*a.TopK)
	}
	a.Out = out(e, "Out", a.Out, 0, n)
	e.run(func() { b.inner.Attend(a) })
}

// Route is encoded; see kernels.Backend. Table is in a mapping and passes as it is.
func (b *Backend) Route(a kernels.RouteArgs) {
	contract.Route(&a)
	e := b.encode("Route")
	a.Logits = in(e, "Logits", a.Logits, a.Rows*a.Experts)
	if a.Table != nil {
		a.Tokens = in(e, "Tokens", a.Tokens, a.Rows)
	} else {
		a.Bias = in(e, "Bias", a.Bias, a.Experts)
	}
	a.IDs = out(e, "IDs", a.IDs, 0, a.Rows*a.Used)
	a.Weights = out(e, "Weights", a.Weights, 0, a.Rows*a.Used)
	e.run(func() { b.inner.Route(a) })
}
