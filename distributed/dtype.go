package distributed

import "fmt"

// DType is the element type of a reduction. The numbers are JACCL's
// (collectives specification, 1.2). Elements are little-endian in memory.
type DType uint8

// The element types.
const (
	Bool      DType = 0 // a byte; sum and max are OR, min is AND
	Int8      DType = 1
	Int16     DType = 2
	Int32     DType = 3
	Int64     DType = 4
	Uint8     DType = 5
	Uint16    DType = 6
	Uint32    DType = 7
	Uint64    DType = 8
	Float16   DType = 9  // IEEE 754 binary16
	BFloat16  DType = 10 // the upper half of a float32
	Float32   DType = 11
	Float64   DType = 12
	Complex64 DType = 13 // two float32; max and min compare the real part, then the imaginary part
)

var dtypes = [...]struct {
	name string
	size int
}{
	{"bool", 1}, {"int8", 1}, {"int16", 2}, {"int32", 4}, {"int64", 8},
	{"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"uint64", 8},
	{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"complex64", 8},
}

// Size returns the length of an element in bytes, 0 for an unknown type.
func (d DType) Size() int {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype %d", uint8(d))
}
