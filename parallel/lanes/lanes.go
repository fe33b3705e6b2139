// Package lanes is how exact sums travel between ranks. They are multiples of 2^-24 of up
// to 63 bits, but the sums of a few neighbours rarely need more than 31 bits above their
// lowest set bit. So a block of them is shifted right by its trailing zeros, and its
// numbers travel as one int32, or if they need it as two or three: lanes of 24 bits, with
// the rest in the last one. Lanes can be added like the numbers, because the upper bits of
// a lane hold its carries. A block that is not added on its way takes two or three bytes a
// number if they suffice.
//
// Measure says what each block of some rows needs, Limits.Layout and Packed how it
// travels, and Encode and Add convert the rows, all with vector instructions where there
// are some.
package lanes

import (
	"math/bits"
	"unsafe"

	"ringmaster/kernels"
)

// Block is how many sums share a shift and a number of lanes. The last block of a row may
// have fewer.
const Block = 64

const (
	laneBits = 24
	laneMask = 1<<laneBits - 1
	// notANumber is the last of three lanes of kernels.NotANumber, less those of as many
	// ranks as a group can have; those of other sums have 17 bits at most.
	notANumber    = 1 << 23
	notANumberEnd = 1 << 22
)

// Layout says how a block travels: in the upper three bits its form, in the lower five
// half of its shift.
type Layout uint8

// The forms of a block.
const (
	zeros     = iota
	words     // int16
	triples   // the lower 16 bits of all sums, then an int8 of each
	oneLane   // int32
	twoLanes  // and so on, one lane of all sums after the other
	manyLanes // three
)

func layoutOf(form, shift int) Layout { return Layout(form<<5 | shift/2) }

func (l Layout) form() int { return int(l >> 5) }

func (l Layout) shift() uint { return 2 * uint(l&31) }

// Lanes is how many lanes the block has, from 0 for zeros to 3.
func (l Layout) Lanes() int { return [...]int{0, 1, 1, 1, 2, 3, 3, 3}[l.form()] }

// size is how many int32 a block of n sums takes, rounded up: a layout may come from another
// rank, and what it says must lie within what is counted.
func (l Layout) size(n int) int { return ([...]int{0, 2, 3, 4, 8, 12, 12, 12}[l.form()]*n + 3) / 4 }

// Unfit is a layout that no block has.
const Unfit Layout = 0xff

// Limits are the bits that a block of sums needs. High is one more than the number of
// bits without sign of the greatest magnitude, Low is 64 less the trailing zeros that all
// have; both are 0 for zeros. So the limits of several blocks are the maximum of each field.
type Limits struct{ High, Low uint8 }

func limitsOf(x []int64) Limits {
	size, any := int64(0), int64(0)
	for _, v := range x {
		size |= v ^ v>>63
		any |= v
	}
	if any == 0 {
		return Limits{}
	}
	return Limits{uint8(1 + bits.Len64(uint64(size))), uint8(64 - bits.TrailingZeros64(uint64(any)))}
}

// Layout returns how blocks within limits travel if 2^growth of them are added on the way.
func (l Limits) Layout(growth int) Layout {
	if l.Low == 0 {
		return 0
	}
	high, shift := int(l.High)-1, (64-int(l.Low))&^1
	switch {
	case high > 31+laneBits: // kernels.NotANumber too
	case high-shift+growth <= 31:
		return layoutOf(oneLane, shift)
	case high-shift+growth <= 31+laneBits:
		return layoutOf(twoLanes, shift)
	}
	return layoutOf(manyLanes, 0)
}

// Packed returns how a block of n sums within limits travels if none is added on the way.
func (l Limits) Packed(n int) Layout {
	lanes := l.Layout(0)
	if lanes.form() != oneLane || n != Block { // only whole blocks, so that all begin at an int32
		return lanes
	}
	switch bits := int(l.High) - 1 - int(lanes.shift()); {
	case bits <= 15:
		return layoutOf(words, int(lanes.shift()))
	case bits <= 23:
		return layoutOf(triples, int(lanes.shift()))
	}
	return lanes
}

// Pack writes Packed of limits [blocks] of rows of width to layouts.
func Pack(layouts []Layout, limits []Limits, width int) {
	perRow := Blocks(1, width)
	for i, l := range limits {
		layouts[i] = l.Packed(min(Block, width-i%perRow*Block))
	}
}

// Blocks is the number of blocks of rows.
func Blocks(rows, width int) int { return rows * ((width + Block - 1) / Block) }

// Len is how many int32 rows of width take in layouts [blocks].
func Len(layouts []Layout, width int) int {
	n, last := 0, width-(width-1)/Block*Block // sums of the last block of a row
	perRow := Blocks(1, width)
	for len(layouts) > 0 {
		for _, l := range layouts[:perRow-1] {
			n += l.size(Block)
		}
		n += layouts[perRow-1].size(last)
		layouts = layouts[perRow:]
	}
	return n
}

// Measure writes the limits [blocks] of the blocks of sums, rows of width.
func Measure(limits []Limits, sums []int64, width int) {
	if !fastMeasure(limits, sums, width) {
		blocks(sums, width, func(i int, x []int64) { limits[i] = limitsOf(x) })
	}
}

// Encode writes the lanes of sums, rows of width in layouts [blocks], to dst, which must
// have room for them: for each block one lane of all sums after the other.
func Encode(dst []int32, layouts []Layout, sums []int64, width int) {
	dst = dst[:Len(layouts[:Blocks(len(sums)/width, width)], width)]
	if !fastEncode(dst, layouts, sums, width) {
		blocks(sums, width, func(i int, x []int64) { dst = layouts[i].encode(dst, x) })
	}
}

// Add adds lanes that Encode has written, or the sum of those of several ranks, to sums,
// rows of width. kernels.NotANumber stays; without careful no sum is that, nor a number in
// lanes unless its block has three.
func Add(sums []int64, layouts []Layout, src []int32, width int, careful bool) {
	src = src[:Len(layouts[:Blocks(len(sums)/width, width)], width)]
	if !fastAdd(sums, layouts, src, width, false, careful) {
		blocks(sums, width, func(i int, x []int64) { src = layouts[i].add(x, src, careful) })
	}
}

// Replace is Add to zeros in place of sums.
func Replace(sums []int64, layouts []Layout, src []int32, width int) {
	src = src[:Len(layouts[:Blocks(len(sums)/width, width)], width)]
	if !fastAdd(sums, layouts, src, width, true, false) {
		clear(sums)
		blocks(sums, width, func(i int, x []int64) { src = layouts[i].add(x, src, false) })
	}
}

// blocks calls f for each block of sums, rows of width.
func blocks(sums []int64, width int, f func(i int, x []int64)) {
	for i := 0; len(sums) > 0; sums = sums[width:] {
		for row := sums[:width]; len(row) > 0; i++ {
			n := min(Block, len(row))
			f(i, row[:n])
			row = row[n:]
		}
	}
}

// encode writes the lanes of a block and returns the rest of dst.
func (l Layout) encode(dst []int32, x []int64) []int32 {
	n, shift := len(x), l.shift()
	switch l.form() {
	case zeros:
		return dst
	case words, triples:
		lower, upper := l.packed(dst, n)
		for i, v := range x {
			v >>= shift
			if lower[i] = uint16(v); upper != nil {
				upper[i] = int8(v >> 16)
			}
		}
		return dst[l.size(n):]
	case oneLane:
		for i, to := 0, dst[:n]; i < len(to) && i < len(x); i++ {
			to[i] = int32(x[i] >> shift)
		}
		return dst[n:]
	case twoLanes:
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

// packed are the words of a block of n sums in x, and the upper bytes of triples.
func (l Layout) packed(x []int32, n int) (lower []uint16, upper []int8) {
	x = x[:l.size(n)]
	lower = unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), n)
	if l.form() == triples {
		upper = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(x[n/2:]))), n)
	}
	return lower, upper
}

// add adds the lanes of a block to acc and returns the rest of src.
func (l Layout) add(acc []int64, src []int32, careful bool) []int32 {
	n, shift := len(acc), l.shift()
	var lower []uint16
	var upper []int8
	switch l.form() {
	case zeros:
		return src
	case words, triples:
		lower, upper = l.packed(src, n)
	case oneLane:
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
		switch l.form() {
		case words:
			acc[i] += int64(int16(lower[i])) << shift
		case triples:
			acc[i] += (int64(lower[i]) + int64(upper[i])<<16) << shift
		case oneLane:
			acc[i] += int64(src[i]) << shift
		case twoLanes:
			acc[i] += (int64(uint32(src[i])) + int64(src[n+i])<<laneBits) << shift
		default:
			if src[2*n+i] >= notANumberEnd {
				acc[i] = kernels.NotANumber
				continue
			}
			acc[i] += int64(uint32(src[i])) + int64(uint32(src[n+i]))<<laneBits + int64(src[2*n+i])<<(2*laneBits)
		}
	}
	return src[l.size(n):]
}
