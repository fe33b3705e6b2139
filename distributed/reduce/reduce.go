// Package reduce computes the sum, maximum or minimum of blocks of elements. Every
// transport uses it, so that a reduction has the same bits however the blocks
// arrived.
//
// # Rules
//
// Blocks are taken in the order given, which is the order of the ranks.
// Float16 and BFloat16 are converted to float32, added there and rounded once,
// to nearest even. Integers wrap. Bool is OR for Sum and Max, AND for Min; any
// byte but 0 is true, and the result is 0 or 1. Complex64 is compared by the
// real, then the imaginary part. Of equal values (also -0 and 0) Max and Min
// keep the first.
//
// A result that is not a number is the one canonical quiet NaN of its type, because
// processors differ in sign and payload and all ranks must have the same bits. A
// Complex64 with one NaN part counts as NaN in Max and Min, and both parts of the
// result are NaN.
//
// Elements are little-endian, and so is every host this runs on. Blocks need no
// alignment.
package reduce

import (
	"encoding/binary"
	"fmt"

	"ringmaster/distributed"
)

// Op is a reduction.
type Op uint8

// The reductions.
const (
	Sum Op = iota
	Max
	Min
)

func (o Op) String() string {
	if o <= Min {
		return [...]string{"sum", "max", "min"}[o]
	}
	return fmt.Sprintf("reduction %d", uint8(o))
}

// ByKind returns the reduction of an all-reduce; every other kind that reduces adds.
func ByKind(k distributed.Kind) Op {
	switch k {
	case distributed.AllMax:
		return Max
	case distributed.AllMin:
		return Min
	}
	return Sum
}

// Reduce leaves in dst the reduction of blocks, element by element, in the order
// given. All have the length of dst, a multiple of dt.Size(); dst may be one of the
// blocks and must not overlap them otherwise. A single block is copied. It panics
// on wrong lengths, no blocks and an unknown dtype, because callers must have
// checked what they received.
func Reduce(op Op, dt distributed.DType, dst []byte, blocks ...[]byte) {
	size := dt.Size()
	if size == 0 || op > Min || len(dst)%size != 0 || len(blocks) == 0 {
		panic(fmt.Sprintf("reduce: %v of %v, %d bytes, %d blocks", op, dt, len(dst), len(blocks)))
	}
	for _, b := range blocks {
		if len(b) != len(dst) {
			panic(fmt.Sprintf("reduce: a block of %d bytes for a result of %d", len(b), len(dst)))
		}
	}
	if len(dst) == 0 {
		return
	}
	if len(blocks) == 1 {
		copy(dst, blocks[0])
		return
	}
	if op == Sum && fastSum(dt, dst, blocks) {
		return
	}
	portable(op, dt, dst, blocks)
}

// NonFiniteFloat16 reports whether any of the float16 values in x [n*2 bytes] is
// infinite or NaN. An odd byte at the end is ignored.
func NonFiniteFloat16(x []byte) bool {
	if found, ok := fastNonFinite(x); ok {
		return found
	}
	return nonFinitePortable(x)
}

// nonFinitePortable tests four values at once: only a value whose exponent bits are
// all set carries into its sign bit when one is added to the exponent.
func nonFinitePortable(x []byte) bool {
	const (
		exponents = 0x7c007c007c007c00
		ones      = 0x0400040004000400
		signs     = 0x8000800080008000
	)
	for len(x) >= 32 {
		a := binary.LittleEndian.Uint64(x)&exponents + ones
		b := binary.LittleEndian.Uint64(x[8:])&exponents + ones
		c := binary.LittleEndian.Uint64(x[16:])&exponents + ones
		d := binary.LittleEndian.Uint64(x[24:])&exponents + ones
		if (a|b|c|d)&signs != 0 {
			return true
		}
		x = x[32:]
	}
	for ; len(x) >= 2; x = x[2:] {
		if binary.LittleEndian.Uint16(x)&0x7c00 == 0x7c00 {
			return true
		}
	}
	return false
}
