package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"ringmaster/kernels"
)

// guard is how many elements follow the ones that an op may access. They hold
// poison, so that a read shows in the result and a write is found afterwards.
const guard = 19

// Poison for memory that must not be read: NaN, and a number that is not an
// index.
var (
	poisonF32    = float32(math.NaN())
	poisonI32    = int32(-1 << 30)
	poisonI64    = int64(-1 << 60)
	poisonHalf   = uint16(0x7e2a)
	poisonWeight = byte(0xff)
)

// mem allocates on a backend and keeps track of what to check afterwards.
type mem struct {
	t        *testing.T
	b        kernels.Backend
	rng      *rand.Rand
	outputs  []func() output
	guards   []func() bool
	mappings []func() // frees them
}

func newMem(t *testing.T, b kernels.Backend, seed string) *mem {
	return &mem{t: t, b: b, rng: seeded(seed)}
}

func (m *mem) close() {
	require.NoError(m.t, m.b.Close())
	for _, free := range m.mappings {
		free()
	}
}

func (m *mem) checkGuards() {
	m.t.Helper()
	for i, intact := range m.guards {
		require.True(m.t, intact(), "memory behind allocation %d of the case was written", i)
	}
}

func (m *mem) results() []output {
	out := make([]output, len(m.outputs))
	for i, f := range m.outputs {
		out[i] = f()
	}
	return out
}

// bitsOf is the bit representation of an element, which equality compares.
func bitsOf[T float32 | int32 | int64 | uint16](v T) uint32 {
	switch v := any(v).(type) {
	case float32:
		return math.Float32bits(v)
	case int32:
		return uint32(v)
	case int64:
		return uint32(v ^ v>>32)
	}
	return uint32(any(v).(uint16))
}

func valueOf[T float32 | int32 | uint16](v T) float64 {
	if h, ok := any(v).(uint16); ok {
		return float64(float16.Frombits(h).Float32())
	}
	return float64(v)
}

func poisonOf[T float32 | int32 | int64 | uint16]() T {
	var v T
	switch p := any(&v).(type) {
	case *float32:
		*p = poisonF32
	case *int32:
		*p = poisonI32
	case *int64:
		*p = poisonI64
	case *uint16:
		*p = poisonHalf
	}
	return v
}

// place copies data to the backend with a guard after it; the slice returned
// ends with the data.
func place[T float32 | int32 | int64 | uint16](m *mem, data []T) []T {
	m.t.Helper()
	all, err := kernels.Make[T](m.b, len(data)+guard)
	require.NoError(m.t, err)
	copy(all, data)
	poison := poisonOf[T]()
	for i := len(data); i < len(all); i++ {
		all[i] = poison
	}
	m.guards = append(m.guards, func() bool {
		for _, v := range all[len(data):] {
			if bitsOf(v) != bitsOf(poison) {
				return false
			}
		}
		return true
	})
	return all[:len(data)]
}

// long is place, but the slice includes the guard: ops must take their extents
// from the shape.
func long[T float32 | int32 | int64 | uint16](m *mem, data []T) []T {
	x := place(m, data)
	return unsafe.Slice(unsafe.SliceData(x), len(data)+guard)
}

// blank is n elements of poison.
func blank[T float32 | int32 | int64 | uint16](m *mem, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = poisonOf[T]()
	}
	return long(m, x)
}

// result registers the first n elements of x as an output.
func result[T float32 | int32 | uint16](m *mem, name string, x []T, n int, tol tolerance) {
	m.checked(name, func() ([]float64, []uint32) {
		values, bits := make([]float64, n), make([]uint32, n)
		for i := range n {
			values[i], bits[i] = valueOf(x[i]), bitsOf(x[i])
		}
		return values, bits
	}, tol, nil)
}

func (m *mem) checked(name string, read func() ([]float64, []uint32), tol tolerance, check func(*testing.T, []float64)) {
	m.outputs = append(m.outputs, func() output {
		values, bits := read()
		return output{name: name, values: values, bits: bits, tol: tol, check: check}
	})
}

// fresh is a blank output of n elements.
func fresh[T float32 | int32 | uint16](m *mem, name string, n int, tol tolerance) []T {
	x := blank[T](m, n)
	result(m, name, x, n, tol)
	return x
}

// mapping copies data into pages of their own and maps them on the backend.
func (m *mem) mapping(data []byte) []byte {
	m.t.Helper()
	pages, free := Pages(m.t, len(data)+1)
	pages = pages[:cap(pages)]
	for i := copy(pages, data); i < len(pages); i++ {
		pages[i] = poisonWeight
	}
	m.mappings = append(m.mappings, free)
	require.NoError(m.t, m.b.Map(pages))
	return pages[:len(data):len(data)]
}

// normal is Normal with the random source of the case.
func (m *mem) normal(n int, deviation float64) []float32 { return Normal(m.rng, n, deviation) }

// small is n integers of -limit..limit: sums of their products are exact.
func (m *mem) small(n, limit int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(m.rng.IntN(2*limit+1) - limit)
	}
	return x
}

func toHalves(x []float32) []uint16 {
	h := make([]uint16, len(x))
	for i, v := range x {
		h[i] = float16.Fromfloat32(v).Bits()
	}
	return h
}
