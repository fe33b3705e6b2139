package kerneltest

import (
	"fmt"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// mixTolerance: a product over all streams in float32 has a relative error of
// about 1e-6, the normalised product is at most about 10 here, and a sigmoid or
// a softmax does not amplify that.
var mixTolerance = tolerance{rel: 2e-5}

// coarse is the error when a quantised Fn is multiplied by activations of 8
// bits: 1/2 % of the magnitude of each product, at most four standard
// deviations of it, passed on.
var coarse = tolerance{rel: 0.1, rms: 0.02}

func streamCases() []opCase {
	var cases []opCase
	for _, shape := range [][2]int{{4, 4096}, {4, 100}, {4, 3}, {1, 64}, {3, 50}, {16, 33}} {
		s, cols := shape[0], shape[1]
		name := fmt.Sprintf("%d of %d", s, cols)
		cases = append(cases, streamElementCases(name, s, cols)...)
	}
	for _, typ := range plainTypes {
		cases = append(cases, mixCase("", typ, 4, 64, 5, 20, false, false), mixCase("expanded", typ, 4, 300, 5, 20, false, true), headCase(typ, 4, 96, 5))
	}
	for _, typ := range []gguf.Type{gguf.Q8_0, gguf.Q4_K, gguf.IQ2XXS} {
		cases = append(cases, mixCase("", typ, 4, 64, 3, 20, true, false), mixCase("expanded", typ, 4, 64, 3, 20, true, true), headCase(typ, 4, 64, 3))
	}
	return append(cases,
		mixCase("many rows", gguf.F16, 4, 64, 37, 20, true, false), mixCase("Flash", gguf.F16, 4, 4096, 3, 20, false, false),
		mixCase("Flash, expanded", gguf.F16, 4, 4096, 3, 20, false, true), mixCase("three streams, expanded", gguf.F32, 3, 257, 2, 3, true, true),
		mixCase("five streams, expanded", gguf.F32, 5, 64, 2, 20, false, true), mixCase("two streams", gguf.F32, 2, 33, 4, 3, true, false), mixCase("one iteration", gguf.F32, 4, 40, 4, 1, false, false),
		mixCase("five streams", gguf.BF16, 5, 7, 20, 20, false, false), headCase(gguf.F32, 3, 37, 19))
}

func streamElementCases(name string, s, cols int) []opCase {
	const rows = 5
	return []opCase{
		{op: "HCInit", name: name, rows: rows, setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*cols, 1))
			h := fresh[float32](m, "h", rows*s*cols, tolerance{})
			return func(from, to int) { m.b.HCInit(h[from*s*cols:], x[from*cols:], to-from, s, cols) }
		}},
		{op: "HCCollapse", name: name, rows: rows, setup: func(m *mem, _ int) func(from, to int) {
			h, pre := long(m, m.normal(rows*s*cols, 1)), long(m, m.normal(rows*s, 1))
			out := fresh[float32](m, "out", rows*cols, oneRounding)
			return func(from, to int) {
				m.b.HCCollapse(out[from*cols:], h[from*s*cols:], pre[from*s:], to-from, s, cols)
			}
		}},
		{op: "HCGate", name: name, rows: rows, setup: func(m *mem, _ int) func(from, to int) {
			h, kv := long(m, m.normal(rows*s*cols, 1)), long(m, m.normal(rows*(s+1)*cols, 1))
			hNorm, keyNorm := long(m, m.normal(s*cols, 1)), long(m, m.normal(s*cols, 1))
			result(m, "h", h, rows*s*cols, mixTolerance)
			return func(from, to int) {
				m.b.HCGate(kernels.HCGateArgs{
					H: h[from*s*cols:], KV: kv[from*(s+1)*cols:], HNorm: hNorm, KeyNorm: keyNorm,
					Rows: to - from, Streams: s, Cols: cols, Eps: 1e-20,
				})
			}
		}},
		{op: "HCExpand", name: name, rows: rows, setup: func(m *mem, _ int) func(from, to int) {
			h, y := long(m, m.normal(rows*s*cols, 1)), long(m, m.normal(rows*cols, 1))
			// random, so far from symmetric, because the transpose must give a different
			// result
			post, comb := long(m, m.normal(rows*s, 1)), long(m, m.normal(rows*s*s, 1))
			result(m, "h", h, rows*s*cols, oneRounding)
			return func(from, to int) {
				m.b.HCExpand(h[from*s*cols:], y[from*cols:], post[from*s:], comb[from*s*s:], to-from, s, cols)
			}
		}},
	}
}

// mixCase has an asymmetric Base, so that rows and columns of Comb differ. other: the streams
// are collapsed with other weights than those that it computes. expand: they are expanded first.
func mixCase(name string, typ gguf.Type, s, cols, rows, iterations int, other, expand bool) opCase {
	tol := mixTolerance
	if typ.BlockElements() > 1 {
		tol = coarse
	}
	return opCase{
		op: "HCMix", name: fmt.Sprintf("%s %s %dx%d", name, typ, s, cols), rows: rows, chunks: []int{1, 2, 8, 17},
		setup: func(m *mem, _ int) func(from, to int) {
			n := s * cols
			h := long(m, m.normal(rows*n, 2))
			fn := m.weight(typ, 1, (2+s)*s, n, 0.02)
			base, scale := long(m, m.normal((2+s)*s, 1)), long(m, []float32{0.7, 1.3, -0.9})
			pre := fresh[float32](m, "pre", rows*s, tol)
			var post, comb, y []float32
			if expand {
				y, post, comb = long(m, m.normal(rows*cols, 1)), long(m, m.normal(rows*s, 1)), long(m, m.normal(rows*s*s, 0.5))
				result(m, "h", h, rows*n, oneRounding)
				result(m, "post", post, rows*s, tol)
				result(m, "comb", comb, rows*s*s, tol)
			} else {
				post, comb = fresh[float32](m, "post", rows*s, tol), fresh[float32](m, "comb", rows*s*s, tol)
			}
			x, norm, weights := fresh[float32](m, "x", rows*cols, tol), long(m, m.normal(cols, 1)), pre
			if other {
				weights = long(m, m.normal(rows*s, 1))
			}
			return func(from, to int) {
				var of []float32
				if expand {
					of = y[from*cols:]
				}
				m.b.HCMix(kernels.HCMixArgs{
					H: h[from*n:], Y: of, Fn: fn, Base: base, Scale: scale, Weights: weights[from*s:], Norm: norm,
					Pre: pre[from*s:], Post: post[from*s:], Comb: comb[from*s*s:], X: x[from*cols:],
					Rows: to - from, Streams: s, Cols: cols, Iterations: iterations, Eps: 1e-6, RMSEps: 1e-6,
				})
			}
		},
	}
}

func headCase(typ gguf.Type, s, cols, rows int) opCase {
	tol := mixTolerance
	if typ.BlockElements() > 1 {
		tol = coarse
	}
	return opCase{
		op: "HCHead", name: fmt.Sprintf("%s %dx%d", typ, s, cols), rows: rows, chunks: []int{1, 2, 17},
		setup: func(m *mem, _ int) func(from, to int) {
			n := s * cols
			h := long(m, m.normal(rows*n, 2))
			fn := m.weight(typ, 1, s, n, 0.02)
			base, scale := long(m, m.normal(s, 1)), long(m, []float32{0.7})
			out := fresh[float32](m, "out", rows*cols, tol)
			return func(from, to int) {
				m.b.HCHead(kernels.HCHeadArgs{
					Out: out[from*cols:], H: h[from*n:], Fn: fn, Base: base, Scale: scale,
					Rows: to - from, Streams: s, Cols: cols, Eps: 1e-6, RMSEps: 1e-6,
				})
			}
		},
	}
}
