package contract

import "ringmaster/kernels"

// maxStreams bounds the streams of a hyper-connection: far above any model and
// small enough for working memory on a stack.
const maxStreams = 16

func streams(op string, rows, streams, cols int) {
	notNegative(op, "rows", rows)
	positive(op, "streams", streams)
	positive(op, "cols", cols)
	if streams > maxStreams {
		Fail(op, "%d streams, at most %d are possible", streams, maxStreams)
	}
}

// HCInit checks Backend.HCInit.
func HCInit(h, x []float32, rows, s, cols int) {
	const op = "HCInit"
	streams(op, rows, s, cols)
	Len(op, "h", h, rows, s, cols)
	Len(op, "x", x, rows, cols)
	apart(op, "h", h, rows*s*cols, "x", x, rows*cols)
}

// HCMix checks Backend.HCMix.
func HCMix(a *kernels.HCMixArgs) {
	const op = "HCMix"
	s := a.Streams
	streams(op, a.Rows, s, a.Cols)
	positive(op, "Iterations", a.Iterations)
	matrix(op, "Fn", a.Fn, (2+s)*s, s*a.Cols)
	Len(op, "H", a.H, a.Rows, s, a.Cols)
	Len(op, "Base", a.Base, (2+s)*s)
	Len(op, "Scale", a.Scale, 3)
	Len(op, "Pre", a.Pre, a.Rows, s)
	Len(op, "Post", a.Post, a.Rows, s)
	Len(op, "Comb", a.Comb, a.Rows, s, s)
	n := a.Rows * s * a.Cols
	apart(op, "Pre", a.Pre, a.Rows*s, "H", a.H, n)
	apart(op, "Post", a.Post, a.Rows*s, "H", a.H, n)
	apart(op, "Comb", a.Comb, a.Rows*s*s, "H", a.H, n)
}

// HCCollapse checks Backend.HCCollapse.
func HCCollapse(out, h, pre []float32, rows, s, cols int) {
	const op = "HCCollapse"
	streams(op, rows, s, cols)
	Len(op, "out", out, rows, cols)
	Len(op, "h", h, rows, s, cols)
	Len(op, "pre", pre, rows, s)
	apart(op, "out", out, rows*cols, "h", h, rows*s*cols)
	apart(op, "out", out, rows*cols, "pre", pre, rows*s)
}

// HCExpand checks Backend.HCExpand.
func HCExpand(h, y, post, comb []float32, rows, s, cols int) {
	const op = "HCExpand"
	streams(op, rows, s, cols)
	Len(op, "h", h, rows, s, cols)
	Len(op, "y", y, rows, cols)
	Len(op, "post", post, rows, s)
	Len(op, "comb", comb, rows, s, s)
	n := rows * s * cols
	apart(op, "h", h, n, "y", y, rows*cols)
	apart(op, "h", h, n, "post", post, rows*s)
	apart(op, "h", h, n, "comb", comb, rows*s*s)
}

// HCHead checks Backend.HCHead.
func HCHead(a *kernels.HCHeadArgs) {
	const op = "HCHead"
	s := a.Streams
	streams(op, a.Rows, s, a.Cols)
	matrix(op, "Fn", a.Fn, s, s*a.Cols)
	Len(op, "Out", a.Out, a.Rows, a.Cols)
	Len(op, "H", a.H, a.Rows, s, a.Cols)
	Len(op, "Base", a.Base, s)
	Len(op, "Scale", a.Scale, 1)
	apart(op, "Out", a.Out, a.Rows*a.Cols, "H", a.H, a.Rows*s*a.Cols)
}
