package decoder

import "ringmaster/kernels"

// Buffer is one slice in memory of a backend, as a row of data: its variable, F32 or I32,
// and its number of elements.
type Buffer struct {
	F32 *[]float32
	I32 *[]int32
	Len int
}

// Allocate allocates buffers and skips those of length 0. After an error, which is the
// backend's, none of them is allocated.
func Allocate(b kernels.Backend, buffers []Buffer) error {
	for i, x := range buffers {
		var err error
		switch {
		case x.Len == 0:
		case x.F32 != nil:
			*x.F32, err = kernels.Make[float32](b, x.Len)
		default:
			*x.I32, err = kernels.Make[int32](b, x.Len)
		}
		if err != nil {
			Free(b, buffers[:i])
			return err
		}
	}
	return nil
}

// Free releases buffers and sets their variables to nil.
func Free(b kernels.Backend, buffers []Buffer) {
	for _, x := range buffers {
		if x.F32 != nil {
			kernels.Release(b, *x.F32)
			*x.F32 = nil
		} else {
			kernels.Release(b, *x.I32)
			*x.I32 = nil
		}
	}
}

// BufferBytes is the bytes that Allocate allocates.
func BufferBytes(buffers []Buffer) (n int64) {
	for _, x := range buffers {
		n += 4 * int64(x.Len)
	}
	return n
}
