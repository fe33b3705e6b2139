package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// oddChunks are the lengths at which chunked prefill goes wrong: around the
// block of 4 and the block and window of 128.
var oddChunks = []int{1, 3, 4, 5, 127, 128, 129}

func cacheCases() []opCase {
	cases := []opCase{
		storeCase("one block", 24, 64, 0), storeCase("odd width", 9, 37, 3), storeCase("far", 20, 512, 1_000_000),
		{op: "StoreKV", name: "rounding", rows: 1, setup: func(m *mem, _ int) func(from, to int) {
			ring := fresh[uint16](m, "ring", len(halfEdges), tolerance{})
			x := long(m, halfEdges)
			return func(int, int) { m.b.StoreKV(ring, x, 1, len(halfEdges), 0, 1) }
		}},
	}
	for _, pos := range []int{0, 4, 99_992} {
		for _, typ := range plainTypes {
			cases = append(cases, compressCase(compressShape{
				name: fmt.Sprintf("overlap from %d %s", pos, typ), rows: 300, pos: pos, ratio: 4, dim: 32, rot: 16, overlap: true, ape: typ,
			}))
		}
	}
	return append(cases, compressorsCase(0), compressorsCase(1),
		compressCase(compressShape{name: "indexer", rows: 140, ratio: 4, dim: 128, rot: 64, overlap: true, hadamard: true, ape: gguf.F32}),
		compressCase(compressShape{name: "128", rows: 300, ratio: 128, dim: 40, rot: 8, ape: gguf.F16}),
		compressCase(compressShape{name: "128 far", rows: 300, pos: 128 * 900, ratio: 128, dim: 512, rot: 64, ape: gguf.F32}),
		compressCase(compressShape{name: "odd", rows: 50, ratio: 3, dim: 7, rot: 2, overlap: true, ape: gguf.F32}),
		compressCase(compressShape{name: "no block completed", rows: 3, ratio: 4, dim: 16, rot: 8, overlap: true, ape: gguf.F32}),
		compressCase(compressShape{name: "latent", rows: 50, pos: 6, ratio: 2, dim: 72, latent: true}),
		compressCase(compressShape{name: "latent of three", rows: 13, ratio: 3, dim: 9, latent: true, ape: gguf.F32}),
		compressCase(compressShape{name: "large scores", rows: 40, ratio: 4, dim: 24, rot: 8, overlap: true, ape: gguf.F32, spread: 300}),
	)
}

// storeCase wraps around a ring just long enough for a chunk. Rows that are not written
// must keep their contents.
func storeCase(name string, rows, cols, pos int) opCase {
	const ringRows = 29
	return opCase{op: "StoreKV", name: name, rows: rows, repeatable: true, chunks: []int{1, 4, 7},
		setup: func(m *mem, _ int) func(from, to int) {
			ring := long(m, toHalves(m.normal(ringRows*cols, 1)))
			x := long(m, m.normal(rows*cols, 1))
			result(m, "ring", ring, ringRows*cols, tolerance{})
			return func(from, to int) { m.b.StoreKV(ring, x[from*cols:], to-from, cols, pos+from, ringRows) }
		}}
}

// compressorsCase feeds several compressors at once: two of other widths, types and ratios, and a
// third. With apart they are not at the same position, so that nothing joins them.
func compressorsCase(apart int) opCase {
	const rows, rot = 21, 8
	shapes := []compressShape{
		{ratio: 4, dim: 40, overlap: true, ape: gguf.F16}, {ratio: 3, dim: 16, hadamard: true, ape: gguf.F32}, {ratio: 5, dim: 24, ape: gguf.BF16},
	}
	return opCase{op: "Compress", name: fmt.Sprintf("several, %d apart", apart), rows: rows, repeatable: true, chunks: []int{1, 4, 5},
		setup: func(m *mem, chunk int) func(from, to int) {
			freqs := long(m, []float32{1, 0.1, 0.01, 0.001})
			var all []kernels.CompressArgs
			for i, s := range shapes {
				a := kernels.CompressArgs{
					Norm: long(m, m.normal(s.dim, 1)), Freqs: freqs, Pos: i * apart * s.ratio, Ratio: s.ratio, Dim: s.dim, RotDim: rot,
					RingRows: chunk + 2*s.ratio, Overlap: s.overlap, Hadamard: s.hadamard, Eps: 1e-6,
				}
				width := a.Width()
				a.KV, a.Score = long(m, m.normal(rows*width, 1)), long(m, m.normal(rows*width, 1))
				a.APE = m.plain(s.ape, s.ratio, width, m.normal(s.ratio*width, 0.5))
				a.RingKV, a.RingScore = blank[float32](m, a.RingRows*width), blank[float32](m, a.RingRows*width)
				first, end := a.Pos/s.ratio, (a.Pos+rows)/s.ratio
				a.Cache = blank[uint16](m, end*s.dim)
				result(m, fmt.Sprint("cache ", i), a.Cache[first*s.dim:], (end-first)*s.dim, halfOf)
				all = append(all, a)
			}
			return func(from, to int) {
				some := slices.Clone(all)
				for i := range some {
					a := &some[i]
					a.KV, a.Score, a.Pos, a.Rows = a.KV[from*a.Width():], a.Score[from*a.Width():], a.Pos+from, to-from
				}
				m.b.Compress(some...)
			}
		}}
}

type compressShape struct {
	name              string
	rows, pos         int
	ratio, dim, rot   int
	overlap, hadamard bool
	latent            bool // the entries before RoPE; without an APE if ratio is 2
	ape               gguf.Type
	spread            float64 // standard deviation of the scores; 0 means 1
}

// halfOf is for values that are rounded to float16 at the end. It allows one unit,
// because the float16 differs by one where the float32 is on the other side of a rounding
// boundary. The rest is the tolerance of the float32.
var halfOf = tolerance{rel: 1e-5, half: 1}

// compressCase feeds tokens pos.. in chunks, each twice, with rings just long enough.
// Everything a call must not read is NaN: ring rows of tokens before the block (and, for
// the first block, of the one before it) and the cache. A case that starts in the middle
// of a sequence fills the first block's rows first, because otherwise its entries would
// read rows that no call of the case wrote.
func compressCase(s compressShape) opCase {
	return opCase{op: "Compress", name: s.name, rows: s.rows, repeatable: true, chunks: oddChunks,
		setup: func(m *mem, chunk int) func(from, to int) {
			width, before := s.dim, s.ratio-1
			if s.overlap {
				width, before = 2*s.dim, 2*s.ratio-1
			}
			ringRows := chunk + before
			spread := s.spread
			if spread == 0 {
				spread = 1
			}
			kv, score := long(m, m.normal(s.rows*width, 1)), long(m, m.normal(s.rows*width, spread))
			earlierKV, earlierScore := m.normal(before*width, 1), m.normal(before*width, 1)
			var ape kernels.Weight
			if !s.latent || s.ratio != 2 {
				ape = m.plain(s.ape, s.ratio, width, m.normal(s.ratio*width, 0.5))
			}
			norm := long(m, m.normal(s.dim, 1))
			freqs := make([]float32, s.rot/2)
			for i := range freqs {
				freqs[i] = float32(math.Pow(160000, -2*float64(i)/float64(s.rot)))
			}
			f := long(m, freqs)
			ringKV, ringScore := blank[float32](m, ringRows*width), blank[float32](m, ringRows*width)
			for i := range before { // rows of the tokens before pos, if there are any
				if p := s.pos - 1 - i; p >= 0 && (p/s.ratio == s.pos/s.ratio || s.overlap && p/s.ratio == s.pos/s.ratio-1) {
					copy(ringKV[p%ringRows*width:][:width], earlierKV[i*width:])
					copy(ringScore[p%ringRows*width:][:width], earlierScore[i*width:])
				}
			}
			first, end := s.pos/s.ratio, (s.pos+s.rows)/s.ratio
			if s.latent {
				latent := blank[float32](m, (end-first)*s.dim)
				result(m, "latent", latent, (end-first)*s.dim, tolerance{rel: 1e-5})
				return func(from, to int) {
					m.b.Compress(kernels.CompressArgs{
						KV: kv[from*width:], Score: score[from*width:], APE: ape, Norm: norm,
						RingKV: ringKV, RingScore: ringScore, Latent: latent[((s.pos+from)/s.ratio-first)*s.dim:],
						Rows: to - from, Pos: s.pos + from, Ratio: s.ratio, Dim: s.dim, RingRows: ringRows, Eps: 1e-6,
					})
				}
			}
			cache := blank[uint16](m, end*s.dim)
			result(m, "cache", cache[first*s.dim:], (end-first)*s.dim, halfOf)
			return func(from, to int) {
				m.b.Compress(kernels.CompressArgs{
					KV: kv[from*width:], Score: score[from*width:], APE: ape, Norm: norm, Freqs: f,
					RingKV: ringKV, RingScore: ringScore, Cache: cache,
					Rows: to - from, Pos: s.pos + from, Ratio: s.ratio, Dim: s.dim, RotDim: s.rot, RingRows: ringRows,
					Overlap: s.overlap, Hadamard: s.hadamard, Eps: 1e-6,
				})
			}
		}}
}
