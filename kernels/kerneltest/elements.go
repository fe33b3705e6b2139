package kerneltest

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/x448/float16"

	"ringmaster/kernels"
)

func elementCases() []opCase {
	var cases []opCase
	for _, n := range []int{1, 5, 16, 1000, 9000} {
		cases = append(cases,
			opCase{op: "Add", name: fmt.Sprint(n), rows: n, chunks: []int{max(1, n/3)},
				setup: func(m *mem, _ int) func(from, to int) {
					a, b := long(m, m.normal(n, 1)), long(m, m.normal(n, 1))
					out := fresh[float32](m, "out", n, tolerance{})
					return func(from, to int) { m.b.Add(out[from:], a[from:], b[from:], to-from) }
				}},
			opCase{op: "Add", name: fmt.Sprintf("%d onto b", n), rows: n, chunks: []int{max(1, n/2)},
				setup: func(m *mem, _ int) func(from, to int) {
					a, b := long(m, m.normal(n, 1)), long(m, m.normal(n, 1))
					result(m, "b", b, n, tolerance{})
					return func(from, to int) { m.b.Add(b[from:], a[from:], b[from:], to-from) }
				}},
			opCase{op: "Clear", name: fmt.Sprint(n), rows: n, chunks: []int{max(1, n/2)},
				setup: func(m *mem, _ int) func(from, to int) {
					x := fresh[float32](m, "x", n, tolerance{})
					return func(from, to int) { m.b.Clear(x[from:], to-from) }
				}},
		)
	}
	for _, n := range []int{1, 5, 16, 1000, 9000} {
		chunks := []int{1 + n/3, 1 + n/2}
		cases = append(cases,
			toHalfCase(fmt.Sprint(n), n, chunks, func(m *mem) []float32 { return m.normal(n, 100) }),
			fromHalfCase(fmt.Sprint(n), n, chunks, func(m *mem) []uint16 { return toHalves(m.normal(n, 100)) }))
	}
	return append(cases, toHalfEdges(), fromHalfAll(), gatherCase(), slotsCase(6, 100), slotsCase(1, 33),
		exactCase(6, 100, 1), exactCase(6, 4096, 1), exactCase(6, 256, 10), exactCase(1, 33, 1), exactCase(8, 7, 1), exactCase(3, 200, 1e5), exactCase(255, 70, 1e9),
		roundCase(0), roundCase(50), copyColumnsCase(40, 64, 192, 192, 0), copyColumnsCase(17, 5, 9, 7, 3), copyColumnsCase(3, 1, 1, 1, 0),
		copyColumnsCase(2, 512, 576, 512, 64))
}

func gatherCase() opCase {
	const rows, cols = 9, 37
	return opCase{op: "Gather", name: "rows repeated and reversed", rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			x := place(m, m.normal(12*cols, 1))
			pick := place(m, []int32{11, 0, 0, 5, 4, 3, 11, 1, 7})
			out := fresh[float32](m, "out", rows*cols, tolerance{})
			return func(from, to int) { m.b.Gather(out[from*cols:], x, pick[from:to], cols) }
		}}
}

// copyColumnsCase: the columns that are not copied keep what they hold.
func copyColumnsCase(rows, cols, outCols, xCols, at int) opCase {
	return opCase{op: "CopyColumns", name: fmt.Sprintf("%d columns of %d to %d", cols, xCols, outCols), rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, m.normal(rows*xCols, 1))
			out := long(m, m.normal(rows*outCols, 1))
			result(m, "out", out, rows*outCols, tolerance{})
			return func(from, to int) {
				m.b.CopyColumns(out[from*outCols+at:], x[from*xCols+xCols-cols:], to-from, cols, outCols, xCols)
			}
		}}
}

func toHalfCase(name string, n int, chunks []int, values func(m *mem) []float32) opCase {
	return opCase{op: "ToFloat16", name: name, rows: n, chunks: chunks,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, values(m))
			out := fresh[uint16](m, "out", n, tolerance{})
			return func(from, to int) { m.b.ToFloat16(out[from:], x[from:], to-from) }
		}}
}

func fromHalfCase(name string, n int, chunks []int, values func(m *mem) []uint16) opCase {
	return opCase{op: "FromFloat16", name: name, rows: n, chunks: chunks,
		setup: func(m *mem, _ int) func(from, to int) {
			x := long(m, values(m))
			out := fresh[float32](m, "out", n, tolerance{})
			return func(from, to int) { m.b.FromFloat16(out[from:], x[from:], to-from) }
		}}
}

// toHalfEdges: every float16, the midpoint between it and the next, and the
// values just below and above that midpoint, of both signs; values out of
// range; NaNs.
func toHalfEdges() opCase {
	values := append([]float32{}, halfEdges...)
	for h := range uint16(0x7c00) {
		low, high := float16.Frombits(h).Float32(), float16.Frombits(h+1).Float32()
		if h == 0x7bff {
			high = 65536
		}
		middle := low + (high-low)/2
		for _, v := range []float32{low, middle, math.Nextafter32(middle, 0), math.Nextafter32(middle, high)} {
			values = append(values, v, -v)
		}
	}
	for _, bits := range []uint32{0x7f800000, 0x7f800001, 0x7f801fff, 0x7f802000, 0x7fa00000, 0x7fc00000, 0x7fffffff, 1, 0x007fffff, 0x7f7fffff} {
		values = append(values, math.Float32frombits(bits), math.Float32frombits(bits|1<<31))
	}
	n := len(values)
	return toHalfCase("edges", n, []int{n / 7}, func(*mem) []float32 { return values })
}

// fromHalfAll: each of the 65536 float16 values, including NaNs.
func fromHalfAll() opCase {
	const n = 1 << 16
	values := make([]uint16, n)
	for i := range values {
		values[i] = uint16(i)
	}
	return fromHalfCase("all", n, []int{n / 7}, func(*mem) []uint16 { return values })
}

// slotsCase: the contract defines the sum in float32, so the bits must match.
func slotsCase(used, cols int) opCase {
	const rows = 4
	return opCase{op: "SumSlots", name: fmt.Sprintf("%d of %d", used, cols), rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			data := m.normal(rows*used*cols, 1)
			for i, v := range halfEdges {
				if i*used < len(data) {
					data[i*used] = v
				}
			}
			slots := long(m, data)
			out := fresh[float32](m, "out", rows*cols, tolerance{})
			return func(from, to int) {
				m.b.SumSlots(out[from*cols:], slots[from*used*cols:], to-from, used, cols)
			}
		}}
}

// exactCase: rounding to float16 meets ties, subnormals, zeros of both signs and values
// beyond the range of float16, and a second sum of the same terms is added to the first, then
// a sum of small ones.
// A row has magnitudes near scale.
func exactCase(count, cols int, scale float64) opCase {
	const rows = 4
	return opCase{op: "SumExact", name: fmt.Sprintf("%d of %d scale=%g", count, cols, scale), rows: rows,
		setup: func(m *mem, _ int) func(from, to int) {
			data := m.normal(rows*count*cols, scale)
			for i, v := range append(halfEdges, exactEdges...) {
				if i*count < len(data) {
					data[i*count] = v
				}
			}
			terms, small := long(m, data), long(m, m.normal(rows*count*cols, 1))
			sums := blank[int64](m, rows*cols)
			result(m, "sums", unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(sums))), 2*rows*cols), 2*rows*cols, tolerance{})
			return func(from, to int) {
				m.b.SumExact(sums[from*cols:], terms[from*count*cols:], to-from, count, cols, false)
				if count <= kernels.MostExactTerms/3 {
					m.b.SumExact(sums[from*cols:], terms[from*count*cols:], to-from, count, cols, true)
					m.b.SumExact(sums[from*cols:], small[from*count*cols:], to-from, count, cols, true)
				}
			}
		}}
}

// roundCase: sums of every length, ties to even in both directions, and what cannot be
// added; the first most of them if that is not 0.
func roundCase(most int) opCase {
	values := []int64{0, kernels.NotANumber, math.MinInt64 + 1, math.MaxInt64}
	for k := range 62 {
		for _, v := range []int64{1<<k - 1, 1 << k, 1<<k + 1, 3<<k - 1, 3 << k} {
			values = append(values, v, -v)
		}
	}
	for k := range 37 { // between two float32
		for _, v := range []int64{1<<24 + 1, 1<<24 + 3, 1<<25 + 2, 1<<25 + 6} {
			values = append(values, v<<k, v<<k+1, v<<k-1, -v<<k, -v<<k+1, -v<<k-1)
		}
	}
	for k := range 300 { // whole blocks of small ones
		values = append(values, int64(k*k*k)<<(k%26), -int64(k*k*k)<<(k%26))
	}
	if most > 0 {
		values = values[:most]
	}
	return opCase{op: "RoundSums", name: fmt.Sprint(len(values), " edges"), rows: len(values), chunks: []int{1, 67, 700},
		setup: func(m *mem, _ int) func(from, to int) {
			sums := long(m, values)
			out := fresh[float32](m, "out", len(values), tolerance{})
			return func(from, to int) { m.b.RoundSums(out[from:], sums[from:], to-from) }
		}}
}

// exactEdges are values around those that SumExact cannot add, and at which a sum in
// doubles would round.
var exactEdges = []float32{
	65536, 0x1p26, -0x1p26, 0x1p30, 0x1.fffffep30, -0x1.fffffep30, 0x1p31, -0x1p31, math.MaxFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// halfEdges are float32 values at which rounding to float16 easily goes wrong:
// ties to even in both directions, the boundaries of subnormals and of
// underflow, the largest float16 and values that round to infinity.
var halfEdges = []float32{
	1 + 0x1p-11, 1 + 3*0x1p-11, 1 + 0x1p-11 + 0x1p-20, -1 - 0x1p-11, 2049, 2051,
	0x1p-14, 0x1p-14 - 0x1p-25, 0x1p-24, 0x1p-25, 0x1p-25 + 0x1p-40, 3 * 0x1p-25, -0x1p-26, 1e-30, -1e-30,
	0, float32(math.Copysign(0, -1)), 65504, 65519.996, 65520, -65520, 1e30, 0x1.ffep-15, 5.9604645e-08,
}
