//go:build cgo

package gpu

/*
#include <stdlib.h>
#include "device.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// commandList holds the dispatches that are encoded and not yet submitted. It is in C
// memory because it holds pointers to objects of the device.
type commandList struct {
	commands []C.rmg_command // in C memory
	n        int
	spent    time.Duration      // estimate of its work
	names    map[string]*C.char // C strings of the ops, for messages

	// What the dispatches since the last barrier read and write. They may run
	// concurrently and in any order.
	reads, writes []extent
}

// extent is a range of bytes of a buffer.
type extent struct {
	object   unsafe.Pointer
	from, to uint64
}

// overlaps reports whether e shares bytes with one of the others.
func (e extent) overlaps(others []extent) bool {
	for _, o := range others {
		if e.object == o.object && e.from < o.to && o.from < e.to {
			return true
		}
	}
	return false
}

// dispatch encodes a dispatch of a kernel. args is a struct of args/*.h; the buffers
// follow it. Failures are recorded and
// returned by the next Flush.
func dispatch[A any](b *Backend, op string, k *kernel, args *A, g grid, buffers ...bind) {
	if g.groups[0] == 0 || g.groups[1] == 0 || g.groups[2] == 0 {
		return
	}
	size := int(unsafe.Sizeof(*args))
	threads := g.threads[0] * g.threads[1] * g.threads[2]
	if size > C.RMG_ARGS || len(buffers) > C.RMG_BINDINGS || g.shared%16 != 0 {
		panic(fmt.Sprintf("gpu: kernel %s: %d bytes of arguments, %d buffers, %d bytes of threadgroup memory", k.name, size, len(buffers), g.shared))
	}
	p, err := b.pipelineOf(k)
	if err != nil {
		b.fail(err)
		return
	}
	if threads > p.threads || g.shared > b.info.SharedMax {
		b.fail(fmt.Errorf("%s: kernel %s needs %d threads and %d bytes of threadgroup memory; the device has %d and %d",
			op, k.name, threads, g.shared, p.threads, b.info.SharedMax))
		return
	}
	spent := b.estimate(g.work, buffers)
	if b.list.n > 0 && b.list.spent+spent > b.mostWork {
		b.Submit()
	}
	b.list.spent += spent
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

// next appends a command, which the caller fills.
func (l *commandList) next() *C.rmg_command {
	if l.n == len(l.commands) {
		n := max(256, 2*l.n)
		p := (*C.rmg_command)(C.malloc(C.size_t(n) * C.sizeof_rmg_command))
		bigger := unsafe.Slice(p, n)
		copy(bigger, l.commands)
		l.freeCommands()
		l.commands = bigger
	}
	l.n++
	return &l.commands[l.n-1]
}

func (l *commandList) freeCommands() {
	if len(l.commands) > 0 {
		C.free(unsafe.Pointer(&l.commands[0]))
	}
}

// free frees the C memory and leaves an empty list.
func (l *commandList) free() {
	l.freeCommands()
	for _, p := range l.names {
		C.free(unsafe.Pointer(p))
	}
	*l = commandList{}
}

// name is op as a C string. It is kept until free, because there are few ops.
func (l *commandList) name(op string) *C.char {
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

// hazard records what a dispatch reads and writes and reports whether it needs a
// barrier before it.
func (l *commandList) hazard(buffers []bind) bool {
	conflict := false
	for _, x := range buffers {
		e := x.extent()
		switch x.access {
		case reads:
			conflict = conflict || e.overlaps(l.writes)
		case writes, updates:
			conflict = conflict || e.overlaps(l.writes) || e.overlaps(l.reads)
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

// Submit commits the encoded dispatches as a command buffer, without waiting. Much work
// was committed earlier, in command buffers of at most mostWork.
func (b *Backend) Submit() {
	l := &b.list
	if l.n == 0 || b.m == nil {
		return
	}
	if b.err == nil {
		var text [1024]C.char
		label := C.CString(fmt.Sprintf("%d: %s to %s, %d dispatches", b.submits, C.GoString(l.commands[0].op), C.GoString(l.commands[l.n-1].op), l.n))
		if C.rmg_submit(b.m, &l.commands[0], C.size_t(l.n), label, &text[0], C.size_t(len(text))) != 0 {
			b.fail(errors.New(C.GoString(&text[0])))
		}
		C.free(unsafe.Pointer(label))
		b.submits++
	}
	l.n, l.spent, l.reads, l.writes = 0, 0, l.reads[:0], l.writes[:0]
}

// Flush submits the encoded dispatches and waits for the device. It returns the
// first failure since Open; after one, no results are valid.
func (b *Backend) Flush() error {
	b.Submit()
	b.drain()
	return b.err
}

// drain waits for the submitted command buffers and records failures, including
// faults that kernels report.
func (b *Backend) drain() {
	if b.m == nil || b.stuck {
		return
	}
	var text [2048]C.char
	switch C.rmg_wait(b.m, b.wait, &text[0], C.size_t(len(text))) {
	case -1:
		b.fail(errors.New(C.GoString(&text[0])))
	case -2:
		b.stuck = true
		b.fail(fmt.Errorf("%s; restart the program, and the host if it happens again", C.GoString(&text[0])))
	}
	if b.fault.object == nil { // not opened yet
		return
	}
	if code := *(*uint32)(b.fault.contents); code != 0 {
		b.fail(errors.New(faultText(code)))
	}
}

// fail records the first failure.
func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Faults that kernels report: the numbers of the preludes of the shading languages.
const (
	faultBytes = 64
	faultRow   = 1
)

func faultText(code uint32) string {
	if code == faultRow {
		return "a row index is out of range of the matrix or table"
	}
	return fmt.Sprintf("a kernel reported fault %d", code)
}
