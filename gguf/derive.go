package gguf

import (
	"errors"
	"fmt"
	"math"
)

// Derive is a tensor that is computed from others of the file, such as a transpose. shape
// is in GGUF's order.
//
// The first call for a name allocates its bytes: page-aligned, outside Go's heap, and
// read-only once fill has written them. With a nil fill they are zeros that take no
// memory. Later calls must be for the same type and shape; they return the same tensor.
// Close frees it. Tensors and Mappings do not list it. An error names the file and the
// tensor; it is fill's, or says that memory is short or the file closed.
func (f *File) Derive(name string, t Type, shape []int64, fill func(data []byte) error) (Tensor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return Tensor{}, fmt.Errorf("%s: tensor %q: %w", f.path, name, errors.New("the file is closed"))
	}
	if d, ok := f.derived[name]; ok {
		return d, nil
	}
	n := int64(t.RowBytes(int(shape[0])))
	for _, m := range shape[1:] {
		if n <= 0 || m <= 0 || n > math.MaxInt64/m {
			return Tensor{}, fmt.Errorf("%s: tensor %q: no %s can have the shape %v", f.path, name, t, shape)
		}
		n *= m
	}
	data, err := mapFilled(int(n), fill)
	if err != nil {
		return Tensor{}, fmt.Errorf("%s: tensor %q: %w", f.path, name, err)
	}
	if f.derived == nil {
		f.derived = map[string]Tensor{}
	}
	d := Tensor{Name: name, Type: t, Shape: shape, Data: data}
	f.derived[name] = d
	return d, nil
}
