package contract

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"ringmaster/kernels"
)

// Access is what an op does with an operand.
type Access int

// The kinds of access.
const (
	Reads Access = iota
	Writes
	Updates // reads, then writes
)

// Span is the elements [Begin, End) of a slice.
type Span struct{ Begin, End int }

// Operand is a slice that is an argument of an op, and what the op does with
// its elements.
type Operand struct {
	Name   string // as in package kernels
	Access Access
	Base   unsafe.Pointer // the first element of the slice
	Len    int            // elements of the slice; it may be longer than the op needs
	Size   int            // bytes of an element
	Extent Span           // all elements that the op may touch; empty for an absent optional operand
	// Written is what the op writes, within Extent: one span, or two where
	// consecutive rows wrap around the end of a ring buffer.
	Written [2]Span
	// Moved is how many elements the op reads plus how many it writes, at
	// most: less than Extent suggests where indices select rows of it.
	Moved int

	inPlace bool // an output may be this very slice
}

// Bytes is Moved in bytes.
func (o *Operand) Bytes() int { return o.Moved * o.Size }

// overlaps reports whether the extents of o and p share memory.
func (o *Operand) overlaps(p *Operand) bool {
	if o.Extent.Begin >= o.Extent.End || p.Extent.Begin >= p.Extent.End {
		return false
	}
	a, b := uintptr(o.Base), uintptr(p.Base)
	return a+uintptr(o.Extent.Begin*o.Size) < b+uintptr(p.Extent.End*p.Size) &&
		b+uintptr(p.Extent.Begin*p.Size) < a+uintptr(o.Extent.End*o.Size)
}

// maxOperands is the most slices that an op has (HCMix).
const maxOperands = 10

// Call is a call of an op with arguments that have passed the checks, and its operands.
// Weights are not among the operands, because no op writes to their mappings.
type Call struct {
	Op       string
	operands [maxOperands]Operand
	n        int
}

// Operands are the slices among the arguments.
func (c *Call) Operands() []Operand { return c.operands[:c.n] }

// Operand is the operand with the given name, which must be one of the op's.
func (c *Call) Operand(name string) *Operand {
	for i := range c.operands[:c.n] {
		if c.operands[i].Name == name {
			return &c.operands[i]
		}
	}
	panic(fmt.Sprintf("contract: %s has no operand %s", c.Op, name))
}

// Bytes is how many bytes of its operands the op moves, see Operand.Moved.
func (c *Call) Bytes() int {
	n := 0
	for i := range c.operands[:c.n] {
		n += c.operands[i].Bytes()
	}
	return n
}

// number is an element type of device memory.
type number interface {
	float32 | int32 | int64 | uint16
}

// Fail panics with a Misuse of op.
func Fail(op, format string, args ...any) {
	panic(&kernels.Misuse{Op: op, Msg: fmt.Sprintf(format, args...)})
}

func (c *Call) fail(format string, args ...any) { Fail(c.Op, format, args...) }

// positive fails unless v > 0.
func (c *Call) positive(name string, v int) {
	if v <= 0 {
		c.fail("%s is %d, must be positive", name, v)
	}
}

// notNegative fails unless v >= 0.
func (c *Call) notNegative(name string, v int) {
	if v < 0 {
		c.fail("%s is %d, must not be negative", name, v)
	}
}

// powerOfTwo fails unless v is a power of two.
func (c *Call) powerOfTwo(name string, v int) {
	if v <= 0 || v&(v-1) != 0 {
		c.fail("%s is %d, must be a power of two", name, v)
	}
}

// product is the number of elements of a shape. Negative dims and an
// overflowing product are misuse.
func (c *Call) product(name string, dims []int) int {
	n := 1
	for _, d := range dims {
		if d < 0 {
			c.fail("%s has a negative length in its shape %v", name, slices.Clone(dims)) // a copy: dims stay on the stack
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > 1<<60 {
			c.fail("%s is too large: shape %v", name, slices.Clone(dims))
		}
		n = int(lo)
	}
	return n
}

// in adds an operand that the op reads: the first elements of x, of the given
// shape. It fails if x is shorter.
func in[T number](c *Call, name string, x []T, dims ...int) *Operand {
	n := c.product(name, dims)
	if len(x) < n {
		c.fail("%s has %d elements, needs %d", name, len(x), n)
	}
	o := &c.operands[c.n]
	c.n++
	*o = Operand{
		Name: name, Base: unsafe.Pointer(unsafe.SliceData(x)), Len: len(x), Size: int(unsafe.Sizeof(*new(T))),
		Extent: Span{0, n}, Moved: n,
	}
	return o
}

// out is in for an operand that the op writes.
func out[T number](c *Call, name string, x []T, dims ...int) *Operand {
	o := in(c, name, x, dims...)
	o.Access, o.Written[0] = Writes, o.Extent
	return o
}

// inOut is in for an operand that the op reads and then writes.
func inOut[T number](c *Call, name string, x []T, dims ...int) *Operand {
	o := out(c, name, x, dims...)
	o.Access, o.Moved = Updates, 2*o.Moved
	return o
}

// ring makes o a ring buffer of ringRows >= rows rows. The op writes those of positions
// pos..pos+rows-1; the others keep what they hold.
func (o *Operand) ring(pos, rows, cols, ringRows int) {
	first := pos % ringRows
	end := min(first+rows, ringRows)
	o.Written = [2]Span{{first * cols, end * cols}, {0, (first + rows - end) * cols}}
	o.Moved = rows * cols
}

// apart fails when an operand that the op writes shares memory with another one, unless
// the op allows exactly that slice to be in place.
func (c *Call) apart() {
	for i := range c.operands[:c.n] {
		w := &c.operands[i]
		for j := range c.operands[:c.n] {
			r := &c.operands[j]
			if w.Access == Reads || i == j || r.inPlace && r.Base == w.Base {
				continue
			}
			if w.overlaps(r) {
				c.fail("%s overlaps %s", w.Name, r.Name)
			}
		}
	}
}
