package contract

import (
	"ringmaster/gguf"
	"ringmaster/kernels"
)

// maxPos bounds positions: a float32 counts exactly to here, and int32
// positions reach beyond it.
const maxPos = 1 << 30

func position(op string, pos, rows int) {
	notNegative(op, "Rows", rows)
	notNegative(op, "Pos", pos)
	if pos > maxPos || rows > maxPos || pos+rows > maxPos {
		Fail(op, "positions %d..%d are beyond %d", pos, pos+rows-1, maxPos)
	}
}

// StoreKV checks Backend.StoreKV.
func StoreKV(ring []uint16, x []float32, rows, cols, pos, ringRows int) {
	const op = "StoreKV"
	position(op, pos, rows)
	positive(op, "cols", cols)
	positive(op, "ringRows", ringRows)
	if rows > ringRows {
		Fail(op, "%d rows do not fit a ring of %d", rows, ringRows)
	}
	Len(op, "ring", ring, ringRows, cols)
	Len(op, "x", x, rows, cols)
	apart(op, "ring", ring, ringRows*cols, "x", x, rows*cols)
}

// Width is the width of the projections of a compressor.
func Width(a *kernels.CompressArgs) int {
	if a.Overlap {
		return 2 * a.Dim
	}
	return a.Dim
}

// Compress checks Backend.Compress.
func Compress(a *kernels.CompressArgs) {
	const op = "Compress"
	position(op, a.Pos, a.Rows)
	positive(op, "Ratio", a.Ratio)
	positive(op, "Dim", a.Dim)
	rotDim(op, a.RotDim, a.Dim)
	if a.Hadamard {
		powerOfTwo(op, "Dim", a.Dim)
	}
	width, least := Width(a), a.Rows+a.Ratio-1
	if a.Overlap {
		least += a.Ratio
	}
	if a.RingRows < least {
		Fail(op, "RingRows is %d, %d rows of ratio %d need %d", a.RingRows, a.Rows, a.Ratio, least)
	}
	matrix(op, "APE", a.APE, a.Ratio, width)
	if t := a.APE.Type; t != gguf.F32 && t != gguf.F16 && t != gguf.BF16 {
		Fail(op, "APE (weight %q) is %s, must be F32, F16 or BF16", a.APE.Name, t)
	}
	entries := (a.Pos + a.Rows) / a.Ratio
	Len(op, "KV", a.KV, a.Rows, width)
	Len(op, "Score", a.Score, a.Rows, width)
	Len(op, "Norm", a.Norm, a.Dim)
	Len(op, "Freqs", a.Freqs, a.RotDim/2)
	Len(op, "RingKV", a.RingKV, a.RingRows, width)
	Len(op, "RingScore", a.RingScore, a.RingRows, width)
	if a.Pos/a.Ratio < entries { // the call completes an entry
		Len(op, "Cache", a.Cache, entries, a.Dim)
	}
	in, ring := a.Rows*width, a.RingRows*width
	apart(op, "RingKV", a.RingKV, ring, "KV", a.KV, in)
	apart(op, "RingKV", a.RingKV, ring, "Score", a.Score, in)
	apart(op, "RingScore", a.RingScore, ring, "KV", a.KV, in)
	apart(op, "RingScore", a.RingScore, ring, "Score", a.Score, in)
	apart(op, "RingScore", a.RingScore, ring, "RingKV", a.RingKV, ring)
}

// IndexTopK checks Backend.IndexTopK.
func IndexTopK(a *kernels.IndexArgs) {
	const op = "IndexTopK"
	position(op, a.Pos, a.Rows)
	positive(op, "Heads", a.Heads)
	positive(op, "Dim", a.Dim)
	positive(op, "TopK", a.TopK)
	positive(op, "Ratio", a.Ratio)
	Len(op, "Q", a.Q, a.Rows, a.Heads, a.Dim)
	Len(op, "HeadWeight", a.HeadWeight, a.Rows, a.Heads)
	Len(op, "Selected", a.Selected, a.Rows, a.TopK)
	out := a.Rows * a.TopK
	apart(op, "Selected", a.Selected, out, "Q", a.Q, a.Rows*a.Heads*a.Dim)
	apart(op, "Selected", a.Selected, out, "HeadWeight", a.HeadWeight, a.Rows*a.Heads)
}

// Attend checks Backend.Attend. The numbers in Selected are not looked at.
func Attend(a *kernels.AttendArgs) {
	const op = "Attend"
	position(op, a.Pos, a.Rows)
	positive(op, "Heads", a.Heads)
	positive(op, "HeadDim", a.HeadDim)
	positive(op, "Window", a.Window)
	notNegative(op, "Ratio", a.Ratio)
	if a.RingRows < a.Window-1+a.Rows {
		Fail(op, "RingRows is %d, %d rows with a window of %d need %d", a.RingRows, a.Rows, a.Window, a.Window-1+a.Rows)
	}
	n := a.Rows * a.Heads * a.HeadDim
	Len(op, "Q", a.Q, a.Rows, a.Heads, a.HeadDim)
	Len(op, "Out", a.Out, a.Rows, a.Heads, a.HeadDim)
	Len(op, "Raw", a.Raw, a.RingRows, a.HeadDim)
	Len(op, "Sinks", a.Sinks, a.Heads)
	apart(op, "Out", a.Out, n, "Q", a.Q, n)
	apart(op, "Out", a.Out, n, "Raw", a.Raw, a.RingRows*a.HeadDim)
	if a.Ratio == 0 {
		return
	}
	if a.Selected != nil {
		positive(op, "TopK", a.TopK)
		Len(op, "Selected", a.Selected, a.Rows, a.TopK)
		apart(op, "Out", a.Out, n, "Selected", a.Selected, a.Rows*a.TopK)
	} else {
		Len(op, "Compressed", a.Compressed, (a.Pos+a.Rows)/a.Ratio, a.HeadDim)
	}
	apart(op, "Out", a.Out, n, "Compressed", a.Compressed, len(a.Compressed))
}
