// Package deferred is a kernels.Backend for tests that is as lazy as the
// contract allows: nothing runs before Flush, and until then every output of an
// encoded op reads as NaN (-2^30 in int32). A caller that reads too early, or
// writes an input of an op that has not run, works by luck on a backend that
// computes at once; here it fails.
//
// The memory that Alloc gives to the host is not what ops compute on. Each
// allocation has a twin on the inner backend. Encoding an op copies its inputs
// to the twin, unless an op encoded before wrote them there, and puts poison in
// its outputs on the host's side. Flush runs the ops on the twins and copies
// what they wrote back. Results are those of the inner backend bit for bit.
package deferred

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"ringmaster/gguf"
	"ringmaster/kernels"
)

// PoisonInt32 is what an int32 output holds until Flush.
const PoisonInt32 int32 = -1 << 30

// poisonOf is what an output holds until Flush.
func poisonOf[T float32 | int32 | uint16]() T {
	var v T
	switch p := any(&v).(type) {
	case *float32:
		*p = float32(math.NaN())
	case *uint16:
		*p = 0x7fff // a NaN
	case *int32:
		*p = PoisonInt32
	}
	return v
}

// Backend is the lazy backend. Create it with Wrap.
type Backend struct {
	inner  kernels.Backend
	blocks []*block // sorted by address
	queue  []func() // the encoded ops
	err    error    // first failure
}

// block is an allocation: host side, twin, and what happened since the last
// Flush. Spans are byte offsets.
type block struct {
	host, twin []byte
	loaded     spans  // copied to the twin; the host must not write it now
	written    spans  // written by an encoded op; poison on the host's side
	poison     []byte // what the host's side of written holds until Flush
}

func (b *block) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b.host))) }

var _ kernels.Backend = (*Backend)(nil)

// Wrap returns a lazy backend that computes with inner and closes it.
func Wrap(inner kernels.Backend) *Backend { return &Backend{inner: inner} }

// Name is "deferred" and the name of the inner backend.
func (b *Backend) Name() string { return "deferred " + b.inner.Name() }

// Alloc returns memory of the host, and allocates as much on the inner backend.
func (b *Backend) Alloc(n int) ([]byte, error) {
	twin, err := b.inner.Alloc(n)
	if err != nil || n == 0 {
		return twin, err
	}
	raw := make([]byte, n+63)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & 63
	added := &block{host: raw[skip : skip+n : skip+n], twin: twin}
	at, _ := slices.BinarySearchFunc(b.blocks, added.address(), func(x *block, a uintptr) int {
		if x.address() < a {
			return -1
		}
		return 1
	})
	b.blocks = slices.Insert(b.blocks, at, added)
	return added.host, nil
}

// Free gives back what Alloc returned. Encoded ops must not use it any more.
func (b *Backend) Free(mem []byte) {
	if len(mem) == 0 {
		return
	}
	for i, x := range b.blocks {
		if &x.host[0] == &mem[0] && len(x.host) == len(mem) {
			if len(x.loaded)+len(x.written) > 0 {
				misuse("Free", "the memory is used by an op that has not been flushed")
			}
			b.blocks = slices.Delete(b.blocks, i, i+1)
			b.inner.Free(x.twin)
			return
		}
	}
	misuse("Free", "%d bytes that are not a live allocation", len(mem))
}

// Map gives the mapping to the inner backend.
func (b *Backend) Map(mapping []byte) error { return b.inner.Map(mapping) }

// CanCompute asks the inner backend.
func (b *Backend) CanCompute(t gguf.Type) bool { return b.inner.CanCompute(t) }

// Submit starts nothing: the contract lets a backend wait until Flush.
func (b *Backend) Submit() {}

// RowsAgree is the inner backend's.
func (b *Backend) RowsAgree() bool { return kernels.RowsAgree(b.inner) }

// Flush runs the encoded ops and shows their results. It fails, besides where
// the inner backend does, when the host has changed memory since an op that
// reads or writes it was encoded; the error names the bytes.
func (b *Backend) Flush() error {
	for _, x := range b.blocks {
		b.note(x.unchanged())
	}
	for _, op := range b.queue {
		op()
	}
	b.queue = nil
	b.note(b.inner.Flush())
	for _, x := range b.blocks {
		if b.err == nil {
			for _, s := range x.written {
				copy(x.host[s.begin:s.end], x.twin[s.begin:s.end])
			}
		}
		x.loaded, x.written = nil, nil
	}
	return b.err
}

// Close drops what is encoded and closes the inner backend.
func (b *Backend) Close() error {
	b.queue, b.blocks = nil, nil
	if b.err == nil {
		b.err = errors.New("deferred: the backend is closed")
	}
	return b.inner.Close()
}

func (b *Backend) note(err error) {
	if b.err == nil && err != nil {
		b.err = err
	}
}

func misuse(op, format string, args ...any) {
	panic(&kernels.Misuse{Op: op, Msg: fmt.Sprintf(format, args...)})
}

// unchanged reports what the host wrote since the ops were encoded.
func (x *block) unchanged() error {
	for _, s := range x.loaded {
		if !bytes.Equal(x.host[s.begin:s.end], x.twin[s.begin:s.end]) {
			return fmt.Errorf("deferred: the host wrote within bytes %d to %d of an allocation of %d before the op that reads them was flushed",
				s.begin, s.end, len(x.host))
		}
	}
	for _, s := range x.written {
		if !bytes.Equal(x.host[s.begin:s.end], x.poison[s.begin:s.end]) {
			return fmt.Errorf("deferred: the host wrote within bytes %d to %d of an allocation of %d before the op that writes them was flushed",
				s.begin, s.end, len(x.host))
		}
	}
	return nil
}

// find is the allocation that holds p, or nil.
func (b *Backend) find(p uintptr) *block {
	at, found := slices.BinarySearchFunc(b.blocks, p, func(x *block, p uintptr) int {
		switch {
		case x.address() > p:
			return 1
		case x.address()+uintptr(len(x.host)) <= p:
			return -1
		}
		return 0
	})
	if !found {
		return nil
	}
	return b.blocks[at]
}

// encoder collects the arguments of one op. in is called for all inputs before
// out for any output.
type encoder struct {
	b       *Backend
	op      string
	outputs []func()
}

func (b *Backend) encode(op string) *encoder { return &encoder{b: b, op: op} }

// run queues the op and poisons its outputs.
func (e *encoder) run(op func()) {
	e.b.queue = append(e.b.queue, op)
	for _, poison := range e.outputs {
		poison()
	}
}

// twin is x on the inner backend. Memory that is not from Alloc is a bug of
// the caller.
func twin[T float32 | int32 | uint16](e *encoder, name string, x []T) ([]T, *block, int) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(x)))
	home := e.b.find(p)
	if home == nil {
		misuse(e.op, "%s is not in memory from Alloc", name)
	}
	at := int(p - home.address())
	if at+len(x)*int(unsafe.Sizeof(x[0])) > len(home.host) {
		misuse(e.op, "%s reaches beyond its allocation", name)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&home.twin[at])), len(x)), home, at
}

// in maps an input of which the op reads the first n elements, and copies to
// the twin what no encoded op wrote there.
func in[T float32 | int32 | uint16](e *encoder, name string, x []T, n int) []T {
	if len(x) == 0 {
		return x
	}
	y, home, at := twin(e, name, x)
	n = min(n, len(x))
	for _, s := range home.written.gaps(span{at, at + n*int(unsafe.Sizeof(x[0]))}) {
		for _, new := range home.loaded.gaps(s) {
			copy(home.twin[new.begin:new.end], home.host[new.begin:new.end])
		}
		home.loaded = home.loaded.add(s)
	}
	e.b.note(home.unchanged())
	return y
}

// out maps an output of which the op writes the elements [from, to).
func out[T float32 | int32 | uint16](e *encoder, name string, x []T, from, to int) []T {
	if len(x) == 0 {
		return x
	}
	y, home, at := twin(e, name, x)
	size := int(unsafe.Sizeof(x[0]))
	to = min(to, len(x))
	if from >= to {
		return y
	}
	e.outputs = append(e.outputs, func() {
		s := span{at + from*size, at + to*size}
		home.loaded = home.loaded.remove(s)
		home.written = home.written.add(s)
		for i := from; i < to; i++ {
			x[i] = poisonOf[T]()
		}
		if home.poison == nil {
			home.poison = make([]byte, len(home.host))
		}
		copy(home.poison[s.begin:s.end], home.host[s.begin:s.end])
	})
	return y
}

// inout maps what the op reads and then writes.
func inout[T float32 | int32 | uint16](e *encoder, name string, x []T, n int) []T {
	in(e, name, x, n)
	return out(e, name, x, 0, n)
}
