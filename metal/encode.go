//go:build (darwin && cgo) || metalsim

package metal

/*
#include <stdlib.h>
#include "host.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// list is the dispatches that are encoded and not yet submitted, in memory of C
// since Go keeps no pointers of the device.
type list struct {
	commands []C.rmm_command // its memory is of C
	n        int
	names    map[string]*C.char // ops, for messages

	// What the dispatches since the last barrier read and wrote. They may
	// run in any order and at once.
	reads, writes []extent
}

// extent is a range of bytes of a buffer.
type extent struct {
	object   unsafe.Pointer
	from, to uint64
}

func (e extent) meets(others []extent) bool {
	for _, o := range others {
		if e.object == o.object && e.from < o.to && o.from < e.to {
			return true
		}
	}
	return false
}

// dispatch encodes a kernel. args is a struct of shaders/*.h, at buffer index 0;
// the buffers follow from index 1.
func dispatch[A any](b *Backend, op string, k *kernel, args *A, g grid, buffers ...bind) {
	if g.groups[0] == 0 || g.groups[1] == 0 || g.groups[2] == 0 {
		return
	}
	size := int(unsafe.Sizeof(*args))
	threads := g.threads[0] * g.threads[1] * g.threads[2]
	if size > C.RMM_ARGS || len(buffers) > C.RMM_BINDINGS || g.shared%16 != 0 {
		panic(fmt.Sprintf("metal: kernel %s: %d bytes of arguments, %d buffers, %d bytes of threadgroup memory", k.name, size, len(buffers), g.shared))
	}
	p, err := b.pipelineOf(k)
	if err != nil {
		b.fail(err)
		return
	}
	if threads > p.threads || g.shared > int(b.info.threadgroup_max) {
		b.fail(fmt.Errorf("metal: %s: kernel %s needs %d threads and %d bytes of threadgroup memory; the device has %d and %d",
			op, k.name, threads, g.shared, p.threads, int(b.info.threadgroup_max)))
		return
	}
	c := b.list.next()
	c.pipeline, c.op = C.int32_t(p.number), b.list.name(op)
	c.barrier = 0
	if b.list.hazard(buffers) {
		c.barrier = 1
	}
	c.args_bytes, c.bindings, c.threadgroup_bytes = C.uint32_t(size), C.uint32_t(len(buffers)), C.uint32_t(g.shared)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.args[0])), size), unsafe.Slice((*byte)(unsafe.Pointer(args)), size))
	for i := range 3 {
		c.groups[i], c.threads[i] = C.uint32_t(g.groups[i]), C.uint32_t(g.threads[i])
	}
	for i, x := range buffers {
		c.binding[i] = x.binding
	}
}

// next is a new command at the end of the list.
func (l *list) next() *C.rmm_command {
	if l.n == len(l.commands) {
		n := max(256, 2*l.n)
		p := (*C.rmm_command)(C.malloc(C.size_t(n) * C.sizeof_rmm_command))
		bigger := unsafe.Slice(p, n)
		copy(bigger, l.commands)
		l.freeCommands()
		l.commands = bigger
	}
	l.n++
	return &l.commands[l.n-1]
}

func (l *list) freeCommands() {
	if len(l.commands) > 0 {
		C.free(unsafe.Pointer(&l.commands[0]))
	}
}

// free gives the memory of C back. Nothing is encoded any more.
func (l *list) free() {
	l.freeCommands()
	for _, p := range l.names {
		C.free(unsafe.Pointer(p))
	}
	*l = list{}
}

// name is op in memory of C, where it stays: there are few.
func (l *list) name(op string) *C.char {
	p := l.names[op]
	if p == nil {
		if l.names == nil {
			l.names = map[string]*C.char{}
		}
		p = C.CString(op)
		l.names[op] = p
	}
	return p
}

// hazard notes what a dispatch reads and writes and reports whether it must wait
// for those before it.
func (l *list) hazard(buffers []bind) bool {
	conflict := false
	for _, x := range buffers {
		e := x.extent()
		switch x.access {
		case reads:
			conflict = conflict || e.meets(l.writes)
		case writes, updates:
			conflict = conflict || e.meets(l.writes) || e.meets(l.reads)
		}
	}
	if conflict {
		l.reads, l.writes = l.reads[:0], l.writes[:0]
	}
	for _, x := range buffers {
		switch x.access {
		case reads:
			l.reads = append(l.reads, x.extent())
		case writes, updates:
			l.writes = append(l.writes, x.extent())
		}
	}
	return conflict
}

func (x bind) extent() extent {
	from := uint64(x.binding.offset)
	return extent{x.binding.object, from, from + uint64(x.bytes)}
}

// Submit starts what is encoded, as one command buffer, without waiting.
func (b *Backend) Submit() {
	l := &b.list
	if l.n == 0 || b.m == nil {
		return
	}
	if b.err == nil {
		var text [1024]C.char
		label := C.CString(fmt.Sprintf("%d: %s to %s, %d dispatches", b.submits, C.GoString(l.commands[0].op), C.GoString(l.commands[l.n-1].op), l.n))
		if C.rmm_submit(b.m, &l.commands[0], C.size_t(l.n), label, &text[0], C.size_t(len(text))) != 0 {
			b.fail(fmt.Errorf("metal: %s", C.GoString(&text[0])))
		}
		C.free(unsafe.Pointer(label))
		b.submits++
	}
	l.n, l.reads, l.writes = 0, l.reads[:0], l.writes[:0]
}

// Flush submits what is encoded and waits for it.
func (b *Backend) Flush() error {
	b.Submit()
	b.drain()
	return b.err
}

// drain waits for what was submitted and notes what failed, misuse that kernels
// report among it.
func (b *Backend) drain() {
	if b.m == nil || b.stuck {
		return
	}
	var text [2048]C.char
	switch C.rmm_wait(b.m, b.patience, &text[0], C.size_t(len(text))) {
	case -1:
		b.fail(fmt.Errorf("metal: %s", C.GoString(&text[0])))
	case -2:
		b.stuck = true
		b.fail(fmt.Errorf("metal: %s; restart the program, and the machine if it happens again", C.GoString(&text[0])))
	}
	if b.fault.object == nil { // not opened yet
		return
	}
	if code := *(*uint32)(b.fault.contents); code != 0 {
		b.fail(fmt.Errorf("metal: %s", faultText(code)))
	}
}

// fail notes the first failure.
func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Faults that kernels report: see report in prelude.metal.
const (
	faultBytes = 64
	faultRow   = 1
)

func faultText(code uint32) string {
	if code == faultRow {
		return "a row number is not one of the matrix or table it is looked up in"
	}
	return fmt.Sprintf("a kernel reported fault %d", code)
}
