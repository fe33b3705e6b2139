package parallel

import (
	"math/bits"

	"ringmaster/kernels"
)

// How exact sums travel. They are multiples of 2^-24 of up to 63 bits, but the sums of a
// few neighbours rarely need more than 31 bits above their lowest set bit. So a block of
// them is shifted right by its trailing zeros, and its numbers travel as one int32, or if
// they need it as two or three: lanes of 24 bits, with the rest in the last one. Lanes can
// be added like the numbers, because the upper bits of a lane hold its carries.

// blockSums is how many sums share a shift and a number of lanes. The last block of a row
// may have fewer.
const blockSums = 64

const (
	laneBits = 24
	laneMask = 1<<laneBits - 1
	// notANumber is the last of three lanes of kernels.NotANumber, less those of as many
	// ranks as a group can have; those of other sums have 17 bits at most.
	notANumber    = 1 << 23
	notANumberEnd = 1 << 22
)

// layout says how a block travels: its lanes, from 0 for zeros to 3, and its shift.
type layout uint8

func layoutOf(lanes, shift int) layout { return layout(lanes<<6 | shift) }

func (l layout) lanes() int  { return int(l >> 6) }
func (l layout) shift() uint { return uint(l & 63) }

// unfit marks sums that do not fit into the message. No block has it.
const unfit layout = 3<<6 | 63

// limits are the bits that a block of sums needs. high is one more than the number of
// bits without sign of the greatest magnitude, low is 64 less the trailing zeros that all
// have; both are 0 for zeros. So the limits of several blocks are the maximum of each field.
type limits struct{ high, low uint8 }

func limitsOf(x []int64) limits {
	size, any := int64(0), int64(0)
	for _, v := range x {
		size |= v ^ v>>63
		any |= v
	}
	if any == 0 {
		return limits{}
	}
	return limits{uint8(1 + bits.Len64(uint64(size))), uint8(64 - bits.TrailingZeros64(uint64(any)))}
}

// layout returns how blocks within limits travel if 2^growth of them are added.
func (l limits) layout(growth int) layout {
	if l.low == 0 {
		return 0
	}
	high, shift := int(l.high)-1, 64-int(l.low)
	switch {
	case high > 31+laneBits: // kernels.NotANumber too
	case high-shift+growth <= 31:
		return layoutOf(1, shift)
	case high-shift+growth <= 31+laneBits:
		return layoutOf(2, shift)
	}
	return layoutOf(3, 0)
}

// encode writes the lanes of a block to dst, one lane of all sums after the other, and
// returns the rest of dst.
func (l layout) encode(dst []int32, x []int64) []int32 {
	n, shift := len(x), l.shift()
	switch l.lanes() {
	case 0:
		return dst
	case 1:
		for i, to := 0, dst[:n]; i < len(to) && i < len(x); i++ {
			to[i] = int32(x[i] >> shift)
		}
		return dst[n:]
	case 2:
		first, last := dst[:n], dst[n:2*n]
		for i, v := range x {
			v >>= shift
			first[i], last[i] = int32(v&laneMask), int32(v>>laneBits)
		}
		return dst[2*n:]
	}
	first, second, last := dst[:n], dst[n:2*n], dst[2*n:3*n]
	for i, v := range x {
		if v == kernels.NotANumber {
			first[i], second[i], last[i] = 0, 0, notANumber
			continue
		}
		first[i], second[i], last[i] = int32(v&laneMask), int32(v>>laneBits&laneMask), int32(v>>(2*laneBits))
	}
	return dst[3*n:]
}

// add adds a block that encode has written, or the sum of several, to acc and returns the
// rest of src. kernels.NotANumber stays; if careful is not set, neither has any.
func (l layout) add(acc []int64, src []int32, careful bool) []int32 {
	n, shift := len(acc), l.shift()
	switch l.lanes() {
	case 0:
		return src
	case 1:
		x := src[:n]
		if !careful {
			for i, v := range x {
				acc[i] += int64(v) << shift
			}
			return src[n:]
		}
	}
	for i := range acc {
		if acc[i] == kernels.NotANumber {
			continue
		}
		switch l.lanes() {
		case 1:
			acc[i] += int64(src[i]) << shift
		case 2:
			acc[i] += (int64(uint32(src[i])) + int64(src[n+i])<<laneBits) << shift
		default:
			if src[2*n+i] >= notANumberEnd {
				acc[i] = kernels.NotANumber
				continue
			}
			acc[i] += int64(uint32(src[i])) + int64(uint32(src[n+i]))<<laneBits + int64(src[2*n+i])<<(2*laneBits)
		}
	}
	return src[l.lanes()*n:]
}
