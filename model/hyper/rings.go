package hyper

import "unsafe"

// Rewind is how many positions behind its greatest length a sequence can be rewound to; the
// rings are deeper by as much.
const Rewind = 64

// FirstCapacity is the room that the compressed caches of a new sequence have, in positions.
const FirstCapacity = 4096

// RawRows is the depth of the ring of key/value rows, in positions: the window of the first
// token of a step, the rewind before it, and the step.
func (s *Shape) RawRows(maxTokens int) int { return s.Window - 1 + Rewind + maxTokens }

// RingRows is the depth of a compressor's rings, in positions: the incomplete block, the
// block before it, the rewind, and the step.
func RingRows(ratio, maxTokens int) int { return 2*ratio + Rewind + maxTokens }

// Ring is the memory of positions [from, to) of a ring of so many rows, in their order,
// without those below 0.
func Ring[T float32 | uint16 | int32](x []T, rows, from, to int) [][]byte {
	from = min(max(from, 0), to)
	width := len(x) / rows
	first, n := from%rows, to-from
	here := min(n, rows-first)
	return [][]byte{AsBytes(x[first*width : (first+here)*width]), AsBytes(x[:(n-here)*width])}
}

// AsBytes is the memory of x.
func AsBytes[T float32 | uint16 | int32](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}
