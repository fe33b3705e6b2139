package kernels

import "ringmaster/gguf"

// Packer packs rows of activations for another rank, in the form in which products with
// quantised weights use them: groups of PackedGroup values, each with one float32 scale
// and integers of two bytes. Products with such weights give the same bits for rows that
// were packed and unpacked as for the rows themselves. Other ops see other values.
//
// Its methods are no ops: they run at once, on the memory as the host sees it. Flush
// before, so that what they read is complete; no encoded op may use what they write.
type Packer interface {
	// Packs reports whether products with weights of the type use no more of
	// activations than a packed row keeps.
	Packs(t gguf.Type) bool
	// PackRows packs x [rows][cols] into out [rows][PackedBytes(cols)], aligned to 4
	// bytes. cols is a multiple of PackedGroup, as it is of all weights that Packs
	// names. A failure for lack of memory is reported by the next Flush.
	PackRows(out []byte, x []float32, rows, cols int)
	// UnpackRows is the inverse of PackRows, up to what no product with weights that
	// Packs names can tell.
	UnpackRows(out []float32, packed []byte, rows, cols int)
}

// PackedGroup is how many values share a scale.
const PackedGroup = 32

// PackedBytes is the bytes of a packed row: the scales, then the integers.
func PackedBytes(cols int) int { return cols / PackedGroup * (4 + 2*PackedGroup) }

// PackerOf is the packer for the products of b, nil if b has none. Rows must then travel
// as float32. A backend that has one, or wraps one that may, has a method Packer.
func PackerOf(b Backend) Packer {
	if p, ok := b.(interface{ Packer() Packer }); ok {
		return p.Packer()
	}
	return nil
}
