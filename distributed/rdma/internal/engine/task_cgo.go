//go:build cgo && (linux || darwin)

package engine

/*
#cgo noescape rme_begin
#cgo nocallback rme_begin
#include "rm_engine.h"
*/
import "C"

import (
	"time"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/reduce"
)

// Task is a compiled operation of this rank, over all its rails.
type Task struct {
	Bytes   int64 // of the operation's data, to choose the goroutine that works on it
	c       *C.struct_rme_task
	conns   []*Conn // numbered as in struct rme_task
	scratch int64
	op      reduce.Op
	dtype   distributed.DType
	blocks  [][]byte
}

func (t *Task) free() {
	C.rme_task_free(t.c)
	t.c = nil
}

// begin prepares the task for operation seq and posts its receives.
func (t *Task) begin(seq uint64, scratch *scratchMemory, flag *int32) Result {
	scratch.grow(t.scratch)
	t.c.scratch, t.c.flag = (*C.uint8_t)(scratch.p), (*C.int)(unsafe.Pointer(flag))
	return Result(C.rme_begin(t.c, C.uint64_t(seq)))
}

func pointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(b))) }

// reduce does a reduction that C does not support.
func (t *Task) reduce(src, dst []byte) Result {
	n := int64(t.c.need_elems) * int64(t.c.elem)
	block := func(k int) []byte {
		var space, wide C.int32_t
		var off C.int64_t
		p := C.rme_need(t.c, C.int(k), &space, &off, &wide)
		switch {
		case p != nil:
			return unsafe.Slice((*byte)(p), n)
		case space == C.RME_SRC:
			return src[off : int64(off)+n]
		}
		return dst[off : int64(off)+n]
	}
	t.blocks = t.blocks[:0]
	for k := range int(t.c.need_inputs) {
		t.blocks = append(t.blocks, block(k))
	}
	reduce.Reduce(t.op, t.dtype, block(-1), t.blocks...)
	return Result(C.rme_reduced(t.c))
}

// Moved returns the bytes of messages sent and received so far.
func (t *Task) Moved() (sent, received int64) { return int64(t.c.sent), int64(t.c.received) }

// OddLengths returns how many messages since the operation began had the right
// header or tag but a completion with another length. For the last of them it
// returns the connection and the stated and expected lengths.
func (t *Task) OddLengths() (n int64, c *Conn, stated, expected uint32) {
	if n = int64(t.c.odd_lengths); n > 0 {
		c = t.conns[t.c.odd_conn]
	}
	return n, c, uint32(t.c.odd_len), uint32(t.c.odd_want)
}

// SinceHeader returns the time since the last header of a peer was received,
// because data could move from then on. It returns false if no header was
// received.
func (t *Task) SinceHeader() (time.Duration, bool) {
	at := int64(t.c.header_at)
	return time.Duration(int64(C.rme_now()) - at), at > 0
}

// Silent lists the peers that have not delivered all their messages, then those
// that have not received all of this rank's. It may list a peer several times.
func (t *Task) Silent() []int {
	var in, out []int
	for _, w := range unsafe.Slice(t.c.wires, int(t.c.nwires)) {
		if w.op < 0 {
			continue
		}
		if w.recv == 1 {
			in = append(in, t.conns[w.conn].Peer)
		} else {
			out = append(out, t.conns[w.conn].Peer)
		}
	}
	return append(in, out...)
}

// Needs reports whether messages must still be sent to a peer or received from
// it. Received messages that wait in their slots are not missing.
func (t *Task) Needs(peer int) bool {
	for _, w := range unsafe.Slice(t.c.wires, int(t.c.nwires)) {
		if w.op < 0 || t.conns[w.conn].Peer != peer {
			continue
		}
		c := t.conns[w.conn].c
		begun := w.begun != 0 || c.header_in != 0
		if w.recv != 1 || !begun || int64(c.recvs_done) < int64(w.base)+int64(w.data) {
			return true
		}
	}
	return false
}

func headerOf(c *C.struct_rme_header) header {
	return header{kind: distributed.Kind(c.op), dtype: distributed.DType(c.dtype), rail: int(c.rail), from: int(c.from), to: int(c.to),
		epoch: uint32(c.epoch), group: uint64(c.group), seq: uint64(c.seq), bytes: uint64(c.bytes), extra: uint64(c.extra)}
}

// fault returns what broke the task.
func (t *Task) fault() fault {
	f := &t.c.fail
	return fault{kind: int(f.kind), conn: t.conns[f.conn], errno: int(f.err), got: int(f.got), want: uint32(f.want),
		wc: completion(&f.wc), header: headerOf(&f.header), expected: headerOf(&f.expected)}
}
