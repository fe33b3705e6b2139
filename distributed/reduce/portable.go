package reduce

import (
	"math"
	"unsafe"

	"github.com/x448/float16"

	"ringmaster/distributed"
)

// tile is how many elements are reduced at a time. They are copied into aligned
// arrays that stay in the L1 cache. dst is written only after the tile has been
// read from all blocks, so that dst may be one of them.
const tile = 512

// The bits of the canonical NaNs.
const (
	nanF16  = 0x7e00
	nanBF16 = 0x7fc0
	nanF32  = 0x7fc00000
	nanF64  = 0x7ff8000000000000
)

// Of the bits of a float32.
const (
	absMask = 0x7fffffff // all but the sign
	infBits = 0x7f800000
)

// portable is Reduce in plain Go, for every type.
func portable(op Op, dt distributed.DType, dst []byte, blocks [][]byte) {
	switch dt {
	case distributed.Bool:
		tiles(dst, blocks, 1, first[uint8], func(acc, x []uint8) { bools(op, acc, x) }, boolsEnd)
	case distributed.Int8:
		integers[int8](op, dst, blocks)
	case distributed.Int16:
		integers[int16](op, dst, blocks)
	case distributed.Int32:
		integers[int32](op, dst, blocks)
	case distributed.Int64:
		integers[int64](op, dst, blocks)
	case distributed.Uint8:
		integers[uint8](op, dst, blocks)
	case distributed.Uint16:
		integers[uint16](op, dst, blocks)
	case distributed.Uint32:
		integers[uint32](op, dst, blocks)
	case distributed.Uint64:
		integers[uint64](op, dst, blocks)
	case distributed.Float16:
		narrow(op, dst, blocks, true)
	case distributed.BFloat16:
		narrow(op, dst, blocks, false)
	case distributed.Float32:
		tiles(dst, blocks, 4, first[float32], func(acc, x []float32) { floats(op, acc, x) }, canonical32)
	case distributed.Float64:
		tiles(dst, blocks, 8, first[float64], func(acc, x []float64) { floats(op, acc, x) }, canonical64)
	case distributed.Complex64:
		if op == Sum { // the parts one by one
			tiles(dst, blocks, 4, first[float32], func(acc, x []float32) { floats(op, acc, x) }, canonical32)
			return
		}
		tiles(dst, blocks, 8, first[complex64], func(acc, x []complex64) { complexes(op, acc, x) }, canonicalComplex)
	}
}

// bytesOf returns the memory of x as bytes.
func bytesOf[T any](x []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(t)))
}

func first[T any](acc, x []T) { copy(acc, x) }

// tiles runs a reduction tile by tile: begin takes the first block, next each
// later one, and end, which may be nil, finishes acc before it is copied to dst.
// size is that of T.
func tiles[T any](dst []byte, blocks [][]byte, size int, begin, next func(acc, x []T), end func(acc []T)) {
	var accs, xs [tile]T
	for at := 0; at < len(dst); at += tile * size {
		n := min(tile*size, len(dst)-at)
		acc, x := accs[:n/size], xs[:n/size]
		for k, b := range blocks {
			copy(bytesOf(x), b[at:at+n])
			if k == 0 {
				begin(acc, x)
			} else {
				next(acc, x)
			}
		}
		if end != nil {
			end(acc)
		}
		copy(dst[at:at+n], bytesOf(acc))
	}
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func integers[T integer](op Op, dst []byte, blocks [][]byte) {
	var t T
	tiles(dst, blocks, int(unsafe.Sizeof(t)), first[T], func(acc, x []T) {
		switch op {
		case Sum:
			for i, v := range x {
				acc[i] += v
			}
		case Max:
			for i, v := range x {
				acc[i] = max(acc[i], v)
			}
		case Min:
			for i, v := range x {
				acc[i] = min(acc[i], v)
			}
		}
	}, nil)
}

func bools(op Op, acc, x []uint8) {
	for i, v := range x {
		if op == Min {
			if v == 0 {
				acc[i] = 0
			}
		} else {
			acc[i] |= v
		}
	}
}

func boolsEnd(acc []uint8) {
	for i, v := range acc {
		if v != 0 {
			acc[i] = 1
		}
	}
}

// floats adds x to acc, or takes the maximum or minimum; NaN wins.
func floats[T float32 | float64](op Op, acc, x []T) {
	switch op {
	case Sum:
		for i, v := range x {
			acc[i] += v
		}
	case Max:
		for i, v := range x {
			if v > acc[i] || math.IsNaN(float64(v)) {
				acc[i] = v
			}
		}
	case Min:
		for i, v := range x {
			if v < acc[i] || math.IsNaN(float64(v)) {
				acc[i] = v
			}
		}
	}
}

func canonical32(acc []float32) {
	for i, v := range acc {
		if math.Float32bits(v)&absMask > infBits {
			acc[i] = math.Float32frombits(nanF32)
		}
	}
}

func canonical64(acc []float64) {
	for i, v := range acc {
		if math.IsNaN(v) {
			acc[i] = math.Float64frombits(nanF64)
		}
	}
}

func isNaN(v complex64) bool {
	return math.IsNaN(float64(real(v))) || math.IsNaN(float64(imag(v)))
}

func less(a, b complex64) bool {
	return real(a) < real(b) || real(a) == real(b) && imag(a) < imag(b)
}

func complexes(op Op, acc, x []complex64) {
	for i, v := range x {
		switch {
		case isNaN(acc[i]):
		case isNaN(v), op == Max && less(acc[i], v), op == Min && less(v, acc[i]):
			acc[i] = v
		}
	}
}

func canonicalComplex(acc []complex64) {
	nan := math.Float32frombits(nanF32)
	for i, v := range acc {
		if isNaN(v) {
			acc[i] = complex(nan, nan)
		}
	}
}

// narrow reduces float16, or otherwise bfloat16, in float32 and rounds once.
func narrow(op Op, dst []byte, blocks [][]byte, isFloat16 bool) {
	var xs [tile]uint16
	var accs, others [tile]float32
	for at := 0; at < len(dst); at += tile * 2 {
		n := min(tile, (len(dst)-at)/2)
		x, acc, other := xs[:n], accs[:n], others[:n]
		for k, b := range blocks {
			copy(bytesOf(x), b[at:at+2*n])
			f := other
			if k == 0 {
				f = acc
			}
			if isFloat16 {
				fromFloat16(f, x)
			} else {
				fromBFloat16(f, x)
			}
			if k > 0 {
				floats(op, acc, f)
			}
		}
		if isFloat16 {
			toFloat16(x, acc)
		} else {
			toBFloat16(x, acc)
		}
		copy(dst[at:at+2*n], bytesOf(x))
	}
}

func fromFloat16(f []float32, x []uint16) {
	for i, v := range x {
		f[i] = float16.Frombits(v).Float32()
	}
}

func toFloat16(x []uint16, f []float32) {
	for i, v := range f {
		if math.Float32bits(v)&absMask > infBits {
			x[i] = nanF16
		} else {
			x[i] = float16.Fromfloat32(v).Bits()
		}
	}
}

func fromBFloat16(f []float32, x []uint16) {
	for i, v := range x {
		f[i] = math.Float32frombits(uint32(v) << 16)
	}
}

func toBFloat16(x []uint16, f []float32) {
	for i, v := range f {
		u := math.Float32bits(v)
		if u&absMask > infBits {
			x[i] = nanBF16
		} else {
			x[i] = uint16((u + 0x7fff + u>>16&1) >> 16) // ties to even
		}
	}
}
