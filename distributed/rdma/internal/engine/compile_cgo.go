//go:build cgo && (linux || darwin)

package engine

/*
#include "rm_engine.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/reduce"
)

const headerMagic = 0x32464d52 // "RMF2"

// arrays are the parts of a task before they are copied to C.
type arrays struct {
	ops     []C.struct_rme_op
	deps    []C.struct_rme_dep
	inputs  []C.struct_rme_input
	wires   []C.struct_rme_wire
	wireOps []C.int32_t
	conns   []*C.struct_rme_conn
}

// sumInC returns which sum C computes for a shape.
func sumInC(s *shape) C.int32_t {
	if s.reduce && s.op == reduce.Sum {
		switch s.out.dtype {
		case distributed.Float16:
			return C.RME_FLOAT16
		case distributed.BFloat16:
			return C.RME_BFLOAT16
		case distributed.Float32:
			return C.RME_FLOAT32
		case distributed.Int32:
			return C.RME_INT32
		}
	}
	return C.RME_BY_GO
}

func bit(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// compile puts the local programs of all rails into one task.
func compile(s shape) (*Task, error) {
	t := &Task{op: s.op, dtype: s.out.dtype}
	var a arrays
	elem := 1
	for _, l := range s.locals {
		elem = l.Elem
		if err := t.add(&a, &s, l); err != nil {
			return nil, err
		}
	}
	fn, level := reduce.SumKernel()
	form := C.struct_rme_task{nops: C.int32_t(len(a.ops)), nwires: C.int32_t(len(a.wires)), nconns: C.int32_t(len(a.conns)),
		elem: C.int32_t(elem), tag: C.int32_t(s.tag), how: sumInC(&s), sum: (*C.rme_sum_fn)(fn), level: C.int(level), spin: C.int64_t(s.spin)}
	t.c = C.rme_task_new(&form, unsafe.SliceData(a.ops), unsafe.SliceData(a.deps), C.int(len(a.deps)), unsafe.SliceData(a.inputs),
		C.int(len(a.inputs)), unsafe.SliceData(a.wires), unsafe.SliceData(a.wireOps), C.int(len(a.wireOps)), unsafe.SliceData(a.conns))
	if t.c == nil {
		return nil, fmt.Errorf("%w: no memory for a plan", distributed.ErrUnavailable)
	}
	return t, nil
}

// add adds the local program of a rail.
func (t *Task) add(a *arrays, s *shape, l *plan.Local) error {
	base := len(a.ops)
	ref := func(r plan.Ref) C.struct_rme_ref {
		c := C.struct_rme_ref{off: C.int64_t(r.Off), stride: C.int64_t(r.Stride), space: C.int32_t(r.Space), window: C.int32_t(r.Window)}
		if r.Space == plan.Scratch {
			c.off += C.int64_t(t.scratch)
		}
		return c
	}
	for i := range l.Ops {
		o := &l.Ops[i]
		c := C.struct_rme_op{kind: C.int32_t(o.Kind), held: bit(o.Held), wide: bit(o.Wide), wire: -1,
			read: ref(o.Read), write: ref(o.Write), elems: C.int64_t(o.Elems), chunk_elems: C.int64_t(o.ChunkElems),
			chunks: C.int64_t(o.Chunks), lag: C.int64_t(o.Lag),
			after: C.int32_t(len(a.deps)), nafter: C.int32_t(len(o.After)), in: C.int32_t(len(a.inputs)), nin: C.int32_t(len(o.Inputs))}
		for _, d := range o.After {
			a.deps = append(a.deps, C.struct_rme_dep{op: C.int32_t(base + d.Op), back: C.int32_t(d.Back)})
		}
		for _, in := range o.Inputs {
			x := C.struct_rme_input{ref: ref(in.Ref), wide: bit(in.Wide), recv: -1}
			if in.Recv >= 0 {
				x.recv = C.int32_t(base + in.Recv)
			}
			a.inputs = append(a.inputs, x)
		}
		a.ops = append(a.ops, c)
	}
	for recv, wires := range [][]plan.Wire{l.Sends, l.Recvs} {
		for _, w := range wires {
			if err := t.addWire(a, s, l, w, recv == 1, base); err != nil {
				return err
			}
		}
	}
	t.scratch += (l.Scratch + 63) &^ 63
	return nil
}

// addWire adds a wire of a local program and, if it is new, its connection.
func (t *Task) addWire(a *arrays, s *shape, l *plan.Local, w plan.Wire, recv bool, base int) error {
	conn := s.conn(w.Peer, l.Rail)
	if conn == nil {
		return fmt.Errorf("%w: rank %d and rank %d, rail %d", plan.ErrNoWire, l.Rank, w.Peer, l.Rail)
	}
	at := -1
	for i, x := range t.conns {
		if x == conn {
			at = i
		}
	}
	if at < 0 {
		at = len(t.conns)
		t.conns = append(t.conns, conn)
		a.conns = append(a.conns, conn.c)
	}
	h, from, to := s.out, l.Rank, w.Peer
	if recv {
		h, from, to = s.in, w.Peer, l.Rank
	}
	c := C.struct_rme_wire{conn: C.int32_t(at), recv: bit(recv), first: C.int32_t(len(a.wireOps)), nops: C.int32_t(len(w.Ops)),
		messages: C.int64_t(w.Messages)}
	c.header = C.struct_rme_header{magic: headerMagic, epoch: C.uint32_t(h.epoch), group: C.uint64_t(h.group), bytes: C.uint64_t(h.bytes),
		extra: C.uint64_t(h.extra), op: C.uint8_t(h.kind), dtype: C.uint8_t(h.dtype), rail: C.uint8_t(l.Rail), from: C.uint8_t(from),
		to: C.uint8_t(to), messages: C.uint64_t(w.Messages)}
	for _, i := range w.Ops {
		a.wireOps = append(a.wireOps, C.int32_t(base+i))
		a.ops[base+i].wire = C.int32_t(len(a.wires))
	}
	a.wires = append(a.wires, c)
	return nil
}
