//go:build cgo && (linux || darwin)

package rdma

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O3 -Wall -Wextra
#cgo noescape rm_begin
#cgo nocallback rm_begin
#include <stdlib.h>
#include "engine.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/distributed/reduce"
)

const headMagic = 0x32464d52 // "RMF2"

// conn is a struct rm_conn.
type conn struct{ c *C.struct_rm_conn }

// connect makes the C side of an end whose queue pair stands.
func (e *end) connect(epoch uint32, slots, slotBytes, headBytes int) error {
	c := (*C.struct_rm_conn)(C.calloc(1, C.sizeof_struct_rm_conn))
	if c == nil {
		return fmt.Errorf("%w: no memory", distributed.ErrUnavailable)
	}
	place := func(off int) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(&e.mem[off])) }
	c.qp, c.cq = (*C.struct_rmv_qp)(e.qp.Handle()), (*C.struct_rmv_cq)(e.cq.Handle())
	c.send, c.recv = place(0), place(slots*slotBytes)
	c.head_send, c.head_recv = place(2*slots*slotBytes), place(2*slots*slotBytes+sendHeads*headBytes)
	c.lkey, c.slot_bytes, c.head_bytes = C.uint32_t(e.mr.LKey()), C.uint32_t(slotBytes), C.uint32_t(headBytes)
	c.slots, c.peer, c.rail, c.epoch = C.int32_t(slots), C.int32_t(e.peer), C.int32_t(e.index), C.uint32_t(epoch)
	e.c = c
	return nil
}

// The words that rooms are told in, at the end of an end's memory: the one that
// the peer writes to, then those that this side writes from.
const maxGrants = C.RM_GRANTS

func (e *end) words() int { return len(e.mem) - plan.Frame }

// roomAddress is the word that the peer writes to.
func (e *end) roomAddress() uint64 { return uint64(uintptr(unsafe.Pointer(&e.mem[e.words()]))) }

// tell makes this side tell the peer, by writing to far, what receives it posts,
// and wait for as much before it sends.
func (e *end) tell(far uint64, key uint32) {
	e.c.room = (*C.uint64_t)(unsafe.Pointer(&e.mem[e.words()]))
	e.c.grant = (*C.uint8_t)(unsafe.Pointer(&e.mem[e.words()+C.RM_GRANT_STEP]))
	e.c.far, e.c.far_key = C.uint64_t(far), C.uint32_t(key)
}

// grant tells of the receives posted so far, granted notes that a word is free
// again: false if the completion is of something else.
func (e *end) grant() int             { return int(C.rm_grant(e.c, 0)) }
func (e *end) granted(id uint64) bool { return C.rm_granted(e.c, C.uint64_t(id)) != 0 }

// roomy: the peer has told of a receive, or need not.
func (e *end) roomy() bool { return e.c.room == nil || C.rm_room(e.c) > 0 }

// disconnect frees it; the queue pair must be gone.
func (e *end) disconnect() {
	C.free(unsafe.Pointer(e.c))
	e.c = nil
}

// postHead posts the standing receive.
func (e *end) postHead() int { return int(C.rm_post_head(e.c, 0)) }

// drain waits for the sends under way and returns how many are left.
func (e *end) drain(limit time.Duration) int { return int(C.rm_drain(e.c, C.int64_t(limit))) }

// flag stops jobs; it lies outside Go's heap.
func newFlag() *int32   { return (*int32)(C.calloc(1, 64)) }
func freeFlag(f *int32) { C.free(unsafe.Pointer(f)) }

// scratchMemory is what jobs of a group share.
type scratchMemory struct {
	p unsafe.Pointer
	n int64
}

func (s *scratchMemory) grow(n int64) {
	if n <= s.n {
		return
	}
	C.free(s.p)
	s.p, s.n = C.malloc(C.size_t(n)), n // Go panics without memory
}

func (s *scratchMemory) free() {
	C.free(s.p)
	s.p, s.n = nil, 0
}

// job is a compiled operation.
type job struct {
	c       *C.struct_rm_job
	ends    []*end // by connection
	scratch int64
	op      reduce.Op
	dtype   distributed.DType
	large   bool
	blocks  [][]byte
}

func how(s *shape) C.int32_t {
	if s.reduce && s.op == reduce.Sum {
		switch s.out.dtype {
		case distributed.Float16:
			return C.RM_HALF
		case distributed.BFloat16:
			return C.RM_BFLOAT
		case distributed.Float32:
			return C.RM_FLOAT
		}
	}
	return C.RM_BY_GO
}

// arrays are the parts of a job before they are copied to C.
type arrays struct {
	ops     []C.struct_rm_op
	deps    []C.struct_rm_dep
	inputs  []C.struct_rm_input
	wires   []C.struct_rm_wire
	wireOps []C.int32_t
	conns   []*C.struct_rm_conn
}

func bit(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// compile puts the local programs of all rails into one job.
func compile(s shape) (*job, error) {
	j := &job{op: s.op, dtype: s.out.dtype}
	var a arrays
	elem := 1
	for _, l := range s.locals {
		elem = l.Elem
		base := len(a.ops)
		ref := func(r plan.Ref) C.struct_rm_ref {
			c := C.struct_rm_ref{off: C.int64_t(r.Off), stride: C.int64_t(r.Stride), space: C.int32_t(r.Space), window: C.int32_t(r.Window)}
			if r.Space == plan.Scratch {
				c.off += C.int64_t(j.scratch)
			}
			return c
		}
		for i := range l.Ops {
			o := &l.Ops[i]
			c := C.struct_rm_op{kind: C.int32_t(o.Kind), held: bit(o.Held), wide: bit(o.Wide), wire: -1,
				read: ref(o.Read), write: ref(o.Write), elems: C.int64_t(o.Elems), chunk_elems: C.int64_t(o.ChunkElems),
				chunks: C.int64_t(o.Chunks), lag: C.int64_t(o.Lag),
				after: C.int32_t(len(a.deps)), nafter: C.int32_t(len(o.After)), in: C.int32_t(len(a.inputs)), nin: C.int32_t(len(o.Inputs))}
			for _, d := range o.After {
				a.deps = append(a.deps, C.struct_rm_dep{op: C.int32_t(base + d.Op), back: C.int32_t(d.Back)})
			}
			for _, in := range o.Inputs {
				x := C.struct_rm_input{ref: ref(in.Ref), wide: bit(in.Wide), recv: -1}
				if in.Recv >= 0 {
					x.recv = C.int32_t(base + in.Recv)
				}
				a.inputs = append(a.inputs, x)
			}
			a.ops = append(a.ops, c)
		}
		for recv, wires := range [][]plan.Wire{l.Sends, l.Recvs} {
			for _, w := range wires {
				if err := j.wire(&a, &s, l, w, recv == 1, base); err != nil {
					return nil, err
				}
			}
		}
		j.scratch += (l.Scratch + 63) &^ 63
	}
	fn, level := reduce.SumKernel()
	form := C.struct_rm_job{nops: C.int32_t(len(a.ops)), nwires: C.int32_t(len(a.wires)), nconns: C.int32_t(len(a.conns)),
		elem: C.int32_t(elem), whole: bit(s.whole), tag: C.int32_t(s.tag), how: how(&s), sum: (*C.rm_sum_fn)(fn), level: C.int(level), spin: C.int64_t(s.spin)}
	j.c = C.rm_job_new(&form, unsafe.SliceData(a.ops), unsafe.SliceData(a.deps), C.int(len(a.deps)), unsafe.SliceData(a.inputs),
		C.int(len(a.inputs)), unsafe.SliceData(a.wires), unsafe.SliceData(a.wireOps), C.int(len(a.wireOps)), unsafe.SliceData(a.conns))
	if j.c == nil {
		return nil, fmt.Errorf("%w: no memory for a plan", distributed.ErrUnavailable)
	}
	return j, nil
}

// wire adds a wire of a local program and, if it is new, its connection.
func (j *job) wire(a *arrays, s *shape, l *plan.Local, w plan.Wire, recv bool, base int) error {
	e := s.ends(w.Peer, l.Rail)
	if e == nil {
		return fmt.Errorf("%w: rank %d and rank %d, rail %d", plan.ErrNoWire, l.Rank, w.Peer, l.Rail)
	}
	at := -1
	for i, x := range j.ends {
		if x == e {
			at = i
		}
	}
	if at < 0 {
		at = len(j.ends)
		j.ends = append(j.ends, e)
		a.conns = append(a.conns, e.c)
	}
	h, from, to := s.out, l.Rank, w.Peer
	if recv {
		h, from, to = s.in, w.Peer, l.Rank
	}
	c := C.struct_rm_wire{conn: C.int32_t(at), recv: bit(recv), first: C.int32_t(len(a.wireOps)), nops: C.int32_t(len(w.Ops)),
		messages: C.int64_t(w.Messages)}
	c.head = C.struct_rm_head{magic: headMagic, epoch: C.uint32_t(h.epoch), group: C.uint64_t(h.group), bytes: C.uint64_t(h.bytes),
		extra: C.uint64_t(h.extra), op: C.uint8_t(h.op), dtype: C.uint8_t(h.dtype), rail: C.uint8_t(l.Rail), from: C.uint8_t(from),
		to: C.uint8_t(to), messages: C.uint64_t(w.Messages)}
	for _, i := range w.Ops {
		a.wireOps = append(a.wireOps, C.int32_t(base+i))
		a.ops[base+i].wire = C.int32_t(len(a.wires))
	}
	a.wires = append(a.wires, c)
	return nil
}

func (j *job) free() {
	C.rm_job_free(j.c)
	j.c = nil
}

// begin readies the job for operation seq and posts its receives.
func (j *job) begin(seq uint64, scratch *scratchMemory, flag *int32) int {
	scratch.grow(j.scratch)
	j.c.scratch, j.c.flag = (*C.uint8_t)(scratch.p), (*C.int)(unsafe.Pointer(flag))
	return int(C.rm_begin(j.c, C.uint64_t(seq)))
}

func pointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(b))) }

// reduce does a reduction that C cannot.
func (j *job) reduce(src, dst []byte) int {
	n := int64(j.c.need_elems) * int64(j.c.elem)
	block := func(k int) []byte {
		var space, wide C.int32_t
		var off C.int64_t
		p := C.rm_need(j.c, C.int(k), &space, &off, &wide)
		switch {
		case p != nil:
			return unsafe.Slice((*byte)(p), n)
		case space == C.RM_SRC:
			return src[off : int64(off)+n]
		}
		return dst[off : int64(off)+n]
	}
	j.blocks = j.blocks[:0]
	for k := range int(j.c.need_inputs) {
		j.blocks = append(j.blocks, block(k))
	}
	reduce.Reduce(j.op, j.dtype, block(-1), j.blocks...)
	return int(C.rm_reduced(j.c))
}

// counts gives the bytes moved so far and when the last head came, in ns since
// an instant of its own, and now in the same terms.
func (j *job) counts() (sent, received uint64, heard, now int64) {
	return uint64(j.c.sent), uint64(j.c.received), int64(j.c.heard), int64(C.rm_now())
}

// silent lists the peers of wires that have not begun to deliver: no head has
// come, or messages are missing; then those that have not taken what was sent.
func (j *job) silent() []*end {
	var in, out []*end
	for _, w := range unsafe.Slice(j.c.wires, int(j.c.nwires)) {
		if w.op < 0 {
			continue
		}
		if w.recv == 1 {
			in = append(in, j.ends[w.conn])
		} else {
			out = append(out, j.ends[w.conn])
		}
	}
	return append(in, out...)
}

func completion(c *C.struct_rmv_wc) verbs.WC {
	return verbs.WC{ID: uint64(c.wr_id), Status: verbs.Status(c.status), Opcode: uint32(c.opcode), VendorErr: uint32(c.vendor_err),
		ByteLen: uint32(c.byte_len), QPN: uint32(c.qp_num)}
}

func headOf(c *C.struct_rm_head) head {
	return head{op: opCode(c.op), dtype: distributed.DType(c.dtype), rail: int(c.rail), from: int(c.from), to: int(c.to),
		epoch: uint32(c.epoch), group: uint64(c.group), seq: uint64(c.seq), bytes: uint64(c.bytes), extra: uint64(c.extra)}
}

// fault says what broke the job.
func (j *job) fault() fault {
	f := &j.c.fail
	return fault{kind: int(f.kind), end: j.ends[f.conn], errno: int(f.err), got: int(f.got), want: uint32(f.want),
		wc: completion(&f.wc), head: headOf(&f.head), expected: headOf(&f.expected)}
}

// scan looks for the cause behind a flush.
func scan(ends []*end, limit time.Duration) (fault, bool) {
	conns := make([]*C.struct_rm_conn, len(ends))
	for i, e := range ends {
		conns[i] = e.c
	}
	var f C.struct_rm_fail
	if len(ends) == 0 || C.rm_scan(unsafe.SliceData(conns), C.int(len(conns)), C.int64_t(limit), &f) == 0 {
		return fault{}, false
	}
	return fault{kind: int(f.kind), end: ends[f.conn], wc: completion(&f.wc)}, true
}
