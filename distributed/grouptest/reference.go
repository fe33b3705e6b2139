package grouptest

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/x448/float16"

	"ringmaster/distributed"
)

// The reference computes one element at a time, in rank order, by the rules of
// package distributed. It shares no code with the transports, so that it cannot
// share their faults.

type kind int

const (
	sum kind = iota
	maximum
	minimum
)

func (k kind) String() string { return [...]string{"sum", "max", "min"}[k] }

// reduced returns the reduction of the blocks of all ranks; for one block, a
// copy.
func reduced(k kind, dt distributed.DType, blocks [][]byte) []byte {
	if len(blocks) == 1 {
		return append([]byte(nil), blocks[0]...)
	}
	size := dt.Size()
	out := make([]byte, 0, len(blocks[0]))
	element := make([][]byte, len(blocks))
	for at := 0; at < len(blocks[0]); at += size {
		for r, b := range blocks {
			element[r] = b[at : at+size]
		}
		out = append(out, reduceOne(k, dt, element)...)
	}
	return out
}

func reduceOne(k kind, dt distributed.DType, x [][]byte) []byte {
	le := binary.LittleEndian
	switch dt {
	case distributed.Bool:
		any, all := byte(0), byte(1)
		for _, b := range x {
			if b[0] != 0 {
				any = 1
			} else {
				all = 0
			}
		}
		if k == minimum {
			return []byte{all}
		}
		return []byte{any}
	case distributed.Float16:
		f := float(k, x, func(b []byte) float64 { return float64(float16.Frombits(le.Uint16(b)).Float32()) }, true)
		if math.IsNaN(f) {
			return []byte{0x00, 0x7e}
		}
		return le.AppendUint16(nil, float16.Fromfloat32(float32(f)).Bits())
	case distributed.BFloat16:
		f := float(k, x, func(b []byte) float64 { return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16)) }, true)
		if math.IsNaN(f) {
			return []byte{0xc0, 0x7f}
		}
		return le.AppendUint16(nil, nearestBF(float32(f)))
	case distributed.Float32:
		return float32Bytes(float(k, x, func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }, true))
	case distributed.Float64:
		f := float(k, x, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }, false)
		if math.IsNaN(f) {
			return le.AppendUint64(nil, 0x7ff8000000000000)
		}
		return le.AppendUint64(nil, math.Float64bits(f))
	case distributed.Complex64:
		return complexOne(k, x)
	}
	return integerOne(k, dt, x)
}

// float reduces in float32 if single is set, otherwise in float64.
func float(k kind, x [][]byte, value func(b []byte) float64, single bool) float64 {
	acc := value(x[0])
	for _, b := range x[1:] {
		v := value(b)
		switch {
		case k == sum && single:
			acc = float64(float32(acc) + float32(v))
		case k == sum:
			acc += v
		case math.IsNaN(acc):
		case math.IsNaN(v), k == maximum && v > acc, k == minimum && v < acc:
			acc = v
		}
	}
	return acc
}

func float32Bytes(f float64) []byte {
	if math.IsNaN(f) {
		return binary.LittleEndian.AppendUint32(nil, 0x7fc00000)
	}
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(f)))
}

// nearestBF rounds to the nearer of the two neighbouring bfloat16 values, a tie
// to the even one.
func nearestBF(f float32) uint16 {
	low := uint16(math.Float32bits(f) >> 16)
	at := func(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }
	if at(low) == float64(f) || math.IsInf(float64(f), 0) {
		return low
	}
	down := math.Abs(float64(f) - at(low))
	next := math.Abs(at(low+1) - float64(f))
	if math.IsInf(at(low+1), 0) { // round as if the exponent range had one more value
		next = math.Ldexp(1, 120) - down
	}
	if down < next || down == next && low&1 == 0 {
		return low
	}
	return low + 1
}

func complexOne(k kind, x [][]byte) []byte {
	part := func(b []byte, i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	if k == sum {
		var out []byte
		for i := range 2 {
			out = append(out, float32Bytes(float(sum, x, func(b []byte) float64 { return part(b, i) }, true))...)
		}
		return out
	}
	best := x[0]
	for _, b := range x {
		if math.IsNaN(part(b, 0)) || math.IsNaN(part(b, 1)) {
			return append(float32Bytes(math.NaN()), float32Bytes(math.NaN())...)
		}
		less := part(best, 0) < part(b, 0) || part(best, 0) == part(b, 0) && part(best, 1) < part(b, 1)
		more := part(best, 0) > part(b, 0) || part(best, 0) == part(b, 0) && part(best, 1) > part(b, 1)
		if k == maximum && less || k == minimum && more {
			best = b
		}
	}
	return best
}

// integerOne computes in integers of arbitrary size and truncates the result.
func integerOne(k kind, dt distributed.DType, x [][]byte) []byte {
	size := dt.Size()
	signed := dt >= distributed.Int8 && dt <= distributed.Int64
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*size))
	value := func(b []byte) *big.Int {
		v := new(big.Int)
		for i := size - 1; i >= 0; i-- {
			v.Lsh(v, 8).Or(v, big.NewInt(int64(b[i])))
		}
		if signed && b[size-1]&0x80 != 0 {
			v.Sub(v, modulus)
		}
		return v
	}
	acc := value(x[0])
	for _, b := range x[1:] {
		v := value(b)
		if k == sum {
			acc.Add(acc, v)
		} else if c := v.Cmp(acc); k == maximum && c > 0 || k == minimum && c < 0 {
			acc = v
		}
	}
	acc.Mod(acc, modulus)
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(new(big.Int).Rsh(acc, uint(8*i)).Uint64())
	}
	return out
}
