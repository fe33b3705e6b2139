package contract

import "ringmaster/kernels"

// maxStreams bounds the streams of a hyper-connection: far above any model and
// small enough for working memory on a stack.
const maxStreams = 16

func (c *Call) streams(rows, streams, cols int) {
	c.notNegative("rows", rows)
	c.positive("streams", streams)
	c.positive("cols", cols)
	if streams > maxStreams {
		c.fail("%d streams, at most %d are possible", streams, maxStreams)
	}
}

// HCInit is Backend.HCInit.
func HCInit(h, x []float32, rows, s, cols int) Call {
	c := Call{Op: "HCInit"}
	c.streams(rows, s, cols)
	in(&c, "x", x, rows, cols)
	out(&c, "h", h, rows, s, cols)
	c.apart()
	return c
}

// HCMix is Backend.HCMix.
func HCMix(a *kernels.HCMixArgs) Call {
	c, s := Call{Op: "HCMix"}, a.Streams
	c.streams(a.Rows, s, a.Cols)
	c.positive("Iterations", a.Iterations)
	c.matrix("Fn", &a.Fn, (2+s)*s, s*a.Cols)
	of := out[float32]
	if a.Y == nil {
		in(&c, "H", a.H, a.Rows, s, a.Cols)
	} else {
		of = inOut[float32]
		inOut(&c, "H", a.H, a.Rows, s, a.Cols)
		in(&c, "Y", a.Y, a.Rows, a.Cols)
	}
	in(&c, "Base", a.Base, (2+s)*s)
	in(&c, "Scale", a.Scale, 3)
	in(&c, "Weights", a.Weights, a.Rows, s).inPlace = true
	in(&c, "Norm", a.Norm, a.Cols)
	out(&c, "X", a.X, a.Rows, a.Cols)
	out(&c, "Pre", a.Pre, a.Rows, s)
	of(&c, "Post", a.Post, a.Rows, s)
	of(&c, "Comb", a.Comb, a.Rows, s, s)
	c.apart()
	return c
}

// HCCollapse is Backend.HCCollapse.
func HCCollapse(dst, h, pre []float32, rows, s, cols int) Call {
	c := Call{Op: "HCCollapse"}
	c.streams(rows, s, cols)
	in(&c, "h", h, rows, s, cols)
	in(&c, "pre", pre, rows, s)
	out(&c, "out", dst, rows, cols)
	c.apart()
	return c
}

// HCExpand is Backend.HCExpand.
func HCExpand(h, y, post, comb []float32, rows, s, cols int) Call {
	c := Call{Op: "HCExpand"}
	c.streams(rows, s, cols)
	in(&c, "y", y, rows, cols)
	in(&c, "post", post, rows, s)
	in(&c, "comb", comb, rows, s, s)
	inOut(&c, "h", h, rows, s, cols)
	c.apart()
	return c
}

// HCHead is Backend.HCHead.
func HCHead(a *kernels.HCHeadArgs) Call {
	c, s := Call{Op: "HCHead"}, a.Streams
	c.streams(a.Rows, s, a.Cols)
	c.matrix("Fn", &a.Fn, s, s*a.Cols)
	in(&c, "H", a.H, a.Rows, s, a.Cols)
	in(&c, "Base", a.Base, s)
	in(&c, "Scale", a.Scale, 1)
	out(&c, "Out", a.Out, a.Rows, a.Cols)
	c.apart()
	return c
}

// HCGate is Backend.HCGate.
func HCGate(a *kernels.HCGateArgs) Call {
	c, s := Call{Op: "HCGate"}, a.Streams
	c.streams(a.Rows, s, a.Cols)
	in(&c, "KV", a.KV, a.Rows, s+1, a.Cols)
	in(&c, "HNorm", a.HNorm, s, a.Cols)
	in(&c, "KeyNorm", a.KeyNorm, s, a.Cols)
	inOut(&c, "H", a.H, a.Rows, s, a.Cols)
	c.apart()
	return c
}
