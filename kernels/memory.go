package kernels

import (
	"fmt"
	"unsafe"
)

// Make allocates n elements on the backend. The memory is zeroed and stays
// until Release or Close of the backend.
func Make[T float32 | int32 | int64 | uint16](b Backend, n int) ([]T, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if n < 0 || n > (1<<62)/size {
		return nil, fmt.Errorf("%s: cannot allocate %d elements", b.Name(), n)
	}
	if n == 0 {
		return nil, nil
	}
	mem, err := b.Alloc(n * size)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

// Release frees what Make returned. x must be the whole slice.
func Release[T float32 | int32 | int64 | uint16](b Backend, x []T) {
	if len(x) == 0 {
		return
	}
	b.Free(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0]))))
}

// Enlarge replaces what Make returned, or nil, by n elements that begin with the same
// ones. After an error x is as it was.
func Enlarge[T float32 | int32 | int64 | uint16](b Backend, x *[]T, n int) error {
	bigger, err := Make[T](b, n)
	if err != nil {
		return err
	}
	if ValuesMatter(b) {
		copy(bigger, *x)
	}
	Release(b, *x)
	*x = bigger
	return nil
}

// AlignedBytes is n zeroed bytes of Go's heap, aligned to 64 as Alloc's are.
func AlignedBytes(n int) []byte {
	raw := make([]byte, n+63)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & 63
	return raw[skip : skip+n : skip+n]
}
