package kernels

import (
	"fmt"
	"unsafe"
)

// Make allocates n elements on the backend. The memory is zeroed and stays
// until Release or Close of the backend.
func Make[T number](b Backend, n int) ([]T, error) {
	return take[T](b.Name, b.Alloc, n)
}

// MakeHost is Make with the memory of AllocHost.
func MakeHost[T number](b Backend, n int) ([]T, error) {
	return take[T](b.Name, func(n int) ([]byte, error) { return AllocHost(b, n) }, n)
}

// AllocHost is Backend.Alloc of memory that the host reads fast. The device may read it more
// slowly than that of Alloc, so it is for what the host reads in a step and the device writes
// once. Free frees it. A backend has a method AllocHost if the two differ (see Host).
func AllocHost(b Backend, n int) ([]byte, error) {
	if h, ok := b.(interface{ AllocHost(n int) ([]byte, error) }); ok {
		return h.AllocHost(n)
	}
	return b.Alloc(n)
}

// Host is what a backend leaves to the host, and at what price.
type Host struct {
	// SlowReads is set if the host reads memory of Alloc slowly, as that of a graphics card;
	// it writes it fast.
	SlowReads bool
	// Experts is set if the ops of routed experts run on the host. What only they use
	// should be memory of AllocHost.
	Experts bool
}

// HostOf is the Host of a backend. A backend that is not the zero Host, or wraps one that may
// not be, has a method Host.
func HostOf(b Backend) Host {
	if h, ok := b.(interface{ Host() Host }); ok {
		return h.Host()
	}
	return Host{}
}

func take[T number](name func() string, alloc func(n int) ([]byte, error), n int) ([]T, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if n < 0 || n > (1<<62)/size {
		return nil, fmt.Errorf("%s: cannot allocate %d elements", name(), n)
	}
	if n == 0 {
		return nil, nil
	}
	mem, err := alloc(n * size)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

// Release frees what Make or MakeHost returned. x must be the whole slice.
func Release[T number](b Backend, x []T) {
	if len(x) == 0 {
		return
	}
	b.Free(bytesOf(x))
}

// Enlarge replaces what Make returned, or nil, by n elements that begin with the same
// ones. After an error x is as it was.
func Enlarge[T number](b Backend, x *[]T, n int) error {
	bigger, err := Make[T](b, n)
	if err != nil {
		return err
	}
	if ValuesMatter(b) {
		if err := Copy(b, bytesOf(bigger)[:len(bytesOf(*x))], bytesOf(*x)); err != nil {
			Release(b, bigger)
			return err
		}
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

// number is an element of a backend's memory.
type number interface {
	float32 | int32 | int64 | uint16
}

// bytesOf returns the memory of x.
func bytesOf[T number](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}
