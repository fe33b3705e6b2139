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
	stageOf  []int              // [n] the stage of each
	weights  []int              // [n] bytes of weights that it binds
	kernels  []int              // [n] number of its kernel
	order    []C.uint32_t       // [n] the commands by stage, made by arrange

	// The stages so far; barriers are between them. The dispatches of one may run
	// concurrently and in any order. No more dispatches may join those below closed.
	stages []stage
	closed int
}

// stage is what its dispatches read and write.
type stage struct{ reads, writes []extent }

// mostStagesBack is how many stages earlier than the last a dispatch that depends on none of
// them may run. It bounds what a dispatch is compared with.
const mostStagesBack = 16

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
	b.list.place(buffers)
	b.list.describe(k, buffers)
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

// describe keeps what the last command is, for counts.
func (l *commandList) describe(k *kernel, buffers []bind) {
	bytes := 0
	for _, x := range buffers {
		bytes = max(bytes, x.weights)
	}
	l.weights, l.kernels = append(l.weights, bytes), append(l.kernels, k.number)
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

// place puts the last command into the earliest stage in which it may run: behind the last one
// that has a dispatch it depends on, or that depends on it.
func (l *commandList) place(buffers []bind) {
	at := len(l.stages)
	for at > max(l.closed, len(l.stages)-mostStagesBack) && !l.stages[at-1].conflicts(buffers) {
		at--
	}
	if at == len(l.stages) {
		l.addStage()
	}
	l.stageOf = append(l.stageOf, at)
	s := &l.stages[at]
	for _, x := range buffers {
		switch x.access {
		case reads:
			s.reads = append(s.reads, x.extent())
		case writes, updates:
			s.writes = append(s.writes, x.extent())
		}
	}
}

// addStage appends an empty stage.
func (l *commandList) addStage() {
	if len(l.stages) == cap(l.stages) {
		l.stages = append(l.stages, stage{})
		return
	}
	l.stages = l.stages[:len(l.stages)+1] // with the memory of an earlier one
	s := &l.stages[len(l.stages)-1]
	s.reads, s.writes = s.reads[:0], s.writes[:0]
}

// conflicts reports whether a dispatch with these buffers must run before or after those of
// the stage: one writes what the other reads or writes.
func (s *stage) conflicts(buffers []bind) bool {
	for _, x := range buffers {
		switch x.access {
		case reads:
			if x.extent().overlaps(s.writes) {
				return true
			}
		case writes, updates:
			if e := x.extent(); e.overlaps(s.writes) || e.overlaps(s.reads) {
				return true
			}
		}
	}
	return false
}

// arrange orders the commands by stage, those of one as they were encoded, and puts a barrier
// between stages.
func (l *commandList) arrange() {
	next := make([]int, len(l.stages)+1) // where the next command of each stage goes
	for _, s := range l.stageOf {
		next[s+1]++
	}
	for s := range l.stages {
		next[s+1] += next[s]
	}
	l.order = slices.Grow(l.order[:0], l.n)[:l.n]
	last := -1
	for i, s := range l.stageOf {
		l.order[next[s]] = C.uint32_t(i)
		next[s]++
	}
	for _, i := range l.order {
		c, s := &l.commands[i], l.stageOf[i]
		c.barrier = 0
		if last >= 0 && s != last {
			c.barrier = 1
		}
		last = s
	}
}

// clear leaves an empty list.
func (l *commandList) clear() {
	l.n, l.spent, l.closed, l.stageOf, l.stages = 0, 0, 0, l.stageOf[:0], l.stages[:0]
	l.weights, l.kernels = l.weights[:0], l.kernels[:0]
}

// replace drops the first dispatches and puts those that encode adds in their place.
func (l *commandList) replace(first int, encode func()) {
	rest, stages, spent := slices.Clone(l.commands[first:l.n]), slices.Clone(l.stageOf[first:]), l.spent
	weights, kernels := slices.Clone(l.weights[first:]), slices.Clone(l.kernels[first:])
	l.clear()
	encode()
	behind := len(l.stages)
	for i := range rest {
		*l.next() = rest[i]
		l.stageOf = append(l.stageOf, behind+stages[i])
		for len(l.stages) <= behind+stages[i] {
			l.addStage()
		}
	}
	l.weights, l.kernels = append(l.weights, weights...), append(l.kernels, kernels...)
	l.spent, l.closed = spent, len(l.stages)
}

func (x bind) extent() extent {
	from := uint64(x.binding.offset)
	return extent{x.binding.object, from, from + uint64(x.bytes)}
}
