// Package deferred is a kernels.Backend for tests that is as lazy as the contract allows:
// nothing runs before Flush, and until then every output of an encoded op reads as NaN
// (PoisonInt32 in int32). A caller that reads too early, or writes an input of an op that
// has not run, works by luck on a backend that computes at once; here it fails.
// Wrap(reference.New()) makes one.
//
// The memory that Alloc gives to the host is not what ops compute on. Each allocation has
// a twin; both are memory of the inner backend. Encoding an op copies its inputs to the twin, unless an
// earlier op wrote them there, and puts poison in its outputs on the host's side. Flush
// runs the ops on the twins and copies what they wrote back. Results are those of the
// inner backend bit for bit.
package deferred

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"ringmaster/kernels"
	"ringmaster/kernels/contract"
)

// What an output holds until Flush: NaNs in float32 and float16. PoisonInt32 is
// the float32's bits, which no index and no position reaches.
const (
	poison32          = 0x7fc00000
	poison16          = 0x7fff
	PoisonInt32 int32 = poison32
)

// Backend is the lazy backend. Create it with Wrap.
type Backend struct {
	*contract.Each
	inner  kernels.Backend
	allocs contract.Allocations[*block]
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

var _ kernels.Backend = (*Backend)(nil)

// Wrap returns a lazy backend that computes with inner and closes it.
func Wrap(inner kernels.Backend) *Backend {
	b := &Backend{inner: inner}
	b.Each = contract.NewEach(inner, b.do)
	return b
}

// Name is "deferred" and the name of the inner backend.
func (b *Backend) Name() string { return "deferred " + b.inner.Name() }

// Alloc allocates twice as much on the inner backend.
func (b *Backend) Alloc(n int) ([]byte, error) {
	return b.allocs.Alloc("deferred", n, func() ([]byte, *block, error) {
		host, err := b.inner.Alloc(n)
		if err != nil {
			return nil, nil, err
		}
		twin, err := b.inner.Alloc(n)
		if err != nil {
			b.inner.Free(host)
			return nil, nil, err
		}
		x := &block{host: host, twin: twin}
		return x.host, x, nil
	})
}

// AllocHost is Alloc, because both kinds of memory are alike here.
func (b *Backend) AllocHost(n int) ([]byte, error) { return b.Alloc(n) }

// Free gives back what Alloc returned. Encoded ops must not use it any more.
func (b *Backend) Free(mem []byte) {
	b.allocs.Free(mem, func(a contract.Allocation[*block]) {
		if x := a.Kept; len(x.loaded)+len(x.written) > 0 {
			contract.Fail("Free", "the memory is used by an op that has not been flushed")
		}
		b.inner.Free(a.Kept.host)
		b.inner.Free(a.Kept.twin)
	})
}

// Submit starts nothing, because the contract lets a backend wait until Flush.
func (b *Backend) Submit() {}

// Flush runs the encoded ops and shows their results. It fails where the inner backend
// does, and also when the host has changed memory that an encoded op reads or writes; the
// error names the bytes.
func (b *Backend) Flush() error {
	for _, a := range b.allocs.All {
		b.note(a.Kept.unchanged())
	}
	for _, op := range b.queue {
		op()
	}
	b.queue = nil
	b.note(b.inner.Flush())
	for _, a := range b.allocs.All {
		x := a.Kept
		if b.err == nil {
			for _, s := range x.written {
				copy(x.host[s.begin:s.end], x.twin[s.begin:s.end])
			}
		}
		x.loaded, x.written = nil, nil
	}
	return b.err
}

// Close drops the encoded ops and closes the inner backend.
func (b *Backend) Close() error {
	b.queue, b.allocs.All = nil, nil
	if b.err == nil {
		b.err = errors.New("the backend is closed")
	}
	return b.inner.Close()
}

func (b *Backend) note(err error) {
	if b.err == nil && err != nil {
		b.err = err
	}
}

// unchanged reports what the host wrote since the ops were encoded.
func (x *block) unchanged() error {
	for _, s := range x.loaded {
		if !bytes.Equal(x.host[s.begin:s.end], x.twin[s.begin:s.end]) {
			return fmt.Errorf("the host wrote within bytes %d to %d of an allocation of %d before the op that reads them was flushed",
				s.begin, s.end, len(x.host))
		}
	}
	for _, s := range x.written {
		if !bytes.Equal(x.host[s.begin:s.end], x.poison[s.begin:s.end]) {
			return fmt.Errorf("the host wrote within bytes %d to %d of an allocation of %d before the op that writes them was flushed",
				s.begin, s.end, len(x.host))
		}
	}
	return nil
}

// do queues an op on the twins of its operands. Its arguments have passed the checks.
func (b *Backend) do(op *contract.Op, run func()) {
	calls := op.Calls()
	for i := range calls {
		b.encode(&calls[i])
	}
	op.Move(b.twin)
	b.queue = append(b.queue, run)
}

// encode copies the inputs of c to the twins, except what encoded ops wrote there, and
// poisons its outputs. Memory that is not from Alloc is misuse.
func (b *Backend) encode(c *contract.Call) {
	for i := range c.Operands() {
		if o := &c.Operands()[i]; o.Access != contract.Writes {
			b.load(c.Op, o)
		}
	}
	for i := range c.Operands() {
		if o := &c.Operands()[i]; o.Access != contract.Reads {
			b.poison(c.Op, o)
		}
	}
}

// home is the allocation that holds o, and the offset at which o begins in it; nil if o
// has no memory.
func (b *Backend) home(op string, o *contract.Operand) (*block, int) {
	if o.Len == 0 {
		return nil, 0
	}
	a, at := b.allocs.Find(uintptr(o.Base))
	if a == nil {
		contract.Fail(op, "%s is not in memory from Alloc", o.Name)
	}
	if at+o.Len*o.Size > len(a.Memory) {
		contract.Fail(op, "%s reaches beyond its allocation", o.Name)
	}
	return a.Kept, at
}

func (b *Backend) load(op string, o *contract.Operand) {
	x, at := b.home(op, o)
	if x == nil {
		return
	}
	for _, s := range x.written.gaps(bytesOf(o, at, o.Extent)) {
		for _, added := range x.loaded.gaps(s) {
			copy(x.twin[added.begin:added.end], x.host[added.begin:added.end])
		}
		x.loaded = x.loaded.add(s)
	}
	b.note(x.unchanged())
}

func (b *Backend) poison(op string, o *contract.Operand) {
	x, at := b.home(op, o)
	if x == nil {
		return
	}
	if x.poison == nil {
		x.poison = make([]byte, len(x.host))
	}
	for _, w := range o.Written {
		s := bytesOf(o, at, w)
		if s.begin >= s.end {
			continue
		}
		x.loaded = x.loaded.remove(s)
		x.written = x.written.add(s)
		for i := s.begin; i < s.end; i += min(o.Size, 4) {
			if o.Size == 2 {
				binary.NativeEndian.PutUint16(x.poison[i:], poison16)
			} else {
				binary.NativeEndian.PutUint32(x.poison[i:], poison32)
			}
		}
		copy(x.host[s.begin:s.end], x.poison[s.begin:s.end])
	}
}

// bytesOf is where elements of o lie in its allocation.
func bytesOf(o *contract.Operand, at int, s contract.Span) span {
	return span{at + s.Begin*o.Size, at + s.End*o.Size}
}

// twin is where the inner backend has the element at p. Memory of mappings has no twin.
func (b *Backend) twin(p unsafe.Pointer) unsafe.Pointer {
	a, at := b.allocs.Find(uintptr(p))
	if a == nil {
		return p
	}
	return unsafe.Pointer(&a.Kept.twin[at])
}
