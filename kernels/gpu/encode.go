//go:build cgo

package gpu

/*
#include <stdlib.h>
#include "device.h"
*/
import "C"

import (
	"fmt"
	"slices"
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
	behind        bool // a barrier must come before the next one, whatever it reads and writes
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
// follow it. Failures are recorded and returned by the next Flush.
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
		b.split()
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
	if b.list.n == firstDispatches && b.arrival == nil && b.ahead.dispatches == 0 {
		b.commit()
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
	conflict := l.behind
	l.behind = false
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

// clear leaves an empty list.
func (l *commandList) clear() {
	l.n, l.spent, l.reads, l.writes, l.behind = 0, 0, l.reads[:0], l.writes[:0], false
}

// replace drops the first dispatches and puts those that encode adds in their place.
func (l *commandList) replace(first int, encode func()) {
	rest, spent := slices.Clone(l.commands[first:l.n]), l.spent
	l.clear()
	encode()
	for i := range rest {
		c := l.next()
		*c = rest[i]
		if i == 0 {
			c.barrier = 1
		}
	}
	l.spent, l.behind = spent, true
}

func (x bind) extent() extent {
	from := uint64(x.binding.offset)
	return extent{x.binding.object, from, from + uint64(x.bytes)}
}
