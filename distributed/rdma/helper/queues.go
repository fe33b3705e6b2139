//go:build cgo && (linux || darwin)

package helper

/*
#include <stdlib.h>
#include "rm_server.h"
*/
import "C"

import (
	"fmt"
	"math/bits"
	"syscall"
	"unsafe"

	"ringmaster/distributed/rdma/verbs"
)

// The queues of a device: their rings, and the C objects that post and poll
// through them.

// ringOf returns the number of slots of a ring for n entries in flight. The ring
// has room for all that a queue may hold, because a full ring refuses requests as
// a full queue does.
func ringOf(n int) uint64 {
	n = min(max(n, 16), 1<<16)
	return 1 << bits.Len(uint(n-1))
}

// create makes a queue with a shared ring of slots; m is the call, without the ring. The
// reply of a call that failed names no object.
func (d *device) create(slots uint64, m *message) (*message, mapping) {
	f, ring, err := d.p.share(ringBytes(slots))
	if err != nil {
		return &message{Errno: int(syscall.ENOMEM)}, mapping{}
	}
	defer f.Close()
	m.Size, m.file = slots, f
	r := d.p.call(m)
	if r.Obj[0] == 0 {
		_ = ring.unmap() // a failure leaves only a mapping
	}
	return r, ring
}

// ringBytes returns the length of a ring.
func ringBytes(slots uint64) int { return int(C.rmh_ring_bytes(C.uint64_t(slots))) }

// keep registers a queue; drop frees its memory.
func (d *device) keep(raw unsafe.Pointer, q queue) unsafe.Pointer {
	d.mu.Lock()
	d.queues[raw] = q
	d.mu.Unlock()
	return raw
}

func (d *device) id(raw unsafe.Pointer) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queues[raw].id
}

func (d *device) drop(raw unsafe.Pointer) {
	d.mu.Lock()
	q := d.queues[raw]
	delete(d.queues, raw)
	d.mu.Unlock()
	_ = q.ring.unmap() // a failure leaves only a mapping
	C.free(raw)
}

// CreateCQ is described at verbs.Calls, as are all that follow.
func (d *device) CreateCQ(n int) (unsafe.Pointer, int) {
	slots := ringOf(n)
	r, m := d.create(slots, &message{Call: "create_cq", Args: [2]int{n}})
	if r.Obj[0] == 0 {
		return nil, r.errno()
	}
	cq := unsafe.Pointer(C.rmh_server_cq_new(d.raw, (*C.struct_rmh_ring)(m.at()), C.uint64_t(slots)))
	return d.keep(cq, queue{r.Obj[0], m}), 0
}

func (d *device) DestroyCQ(cq unsafe.Pointer) int { return d.destroy("destroy_cq", cq) }
func (d *device) DestroyQP(qp unsafe.Pointer) int { return d.destroy("destroy_qp", qp) }

func (d *device) destroy(call string, raw unsafe.Pointer) int {
	errno := d.gone(d.p.call(&message{Call: call, Obj: [3]uint32{d.id(raw)}}))
	if errno == 0 {
		d.drop(raw)
	}
	return errno
}

func (d *device) CreateQP(pd, sendCQ, recvCQ unsafe.Pointer, kind verbs.QPType, asked verbs.Caps) (unsafe.Pointer, uint32, int) {
	// Twice the requested depth, because a provider may grant more.
	slots := ringOf(2 * (asked.SendWR + asked.RecvWR))
	r, m := d.create(slots, &message{Call: "create_qp", Obj: [3]uint32{(*remote)(pd).id, d.id(sendCQ), d.id(recvCQ)},
		Args: [2]int{int(kind)}, Caps: asked})
	if r.Obj[0] == 0 {
		return nil, 0, r.errno()
	}
	qp := unsafe.Pointer(C.rmh_server_qp_new(d.raw, (*C.struct_rmh_ring)(m.at()), C.uint64_t(slots), C.uint32_t(r.Num)))
	return d.keep(qp, queue{r.Obj[0], m}), r.Num, 0
}

func (d *device) ModifyQP(qp unsafe.Pointer, t verbs.Transition) int {
	return d.p.call(&message{Call: "modify_qp", Obj: [3]uint32{d.id(qp)}, Change: &t}).Errno
}

func (d *device) QueryQP(qp unsafe.Pointer) (verbs.Caps, verbs.QPState, int) {
	r := d.p.call(&message{Call: "query_qp", Obj: [3]uint32{d.id(qp)}})
	return r.Caps, r.State, r.Errno
}

// postLimit bounds the wait for a post; a post that takes longer hangs in the
// driver.
const postLimit = C.int64_t(verbs.DefaultLimit)

func (d *device) Post(qp unsafe.Pointer, send bool, reqs []verbs.Request) (int, int) {
	sends := C.int(0)
	if send {
		sends = 1
	}
	for i, r := range reqs {
		errno := int(C.rmh_post_sync((*C.struct_rmh_server_qp)(qp), sends, C.uint64_t(r.ID), C.uint64_t(r.Addr), C.uint32_t(r.Len), C.uint32_t(r.LKey), postLimit))
		if errno != 0 {
			d.settled()
			return i, errno
		}
	}
	return len(reqs), 0
}

func (d *device) Settle(qp unsafe.Pointer) int {
	errno := int(C.rmh_settle((*C.struct_rmh_server_qp)(qp), postLimit))
	if errno != 0 {
		d.settled()
	}
	return errno
}

// settled waits, if the helper is lost, until the reason is known.
func (d *device) settled() {
	select {
	case <-d.p.gone:
	case <-d.p.ended:
	default:
		return
	}
	<-d.p.watched
}

func (d *device) Poll(cq unsafe.Pointer, out []verbs.WC) int {
	c := (*C.struct_rmv_cq)(cq)
	return int(C.rmv_poll_cq(c, C.int(len(out)), (*C.struct_rmv_wc)(unsafe.Pointer(&out[0]))))
}

// Fault reads the error that the helper has left in the ring.
func (d *device) Fault(cq unsafe.Pointer) error {
	d.settled()
	if err := d.p.why(); err != nil {
		return err
	}
	c := (*C.struct_rmh_server_cq)(cq)
	trouble := uint64(C.rmh_trouble_of(c))
	if trouble == 0 {
		return nil
	}
	low, errno := uint32(trouble), syscall.Errno(trouble>>32&0xffff)
	if errno == 0 {
		errno = syscall.EIO
	}
	post := &verbs.PostError{Device: d.name, QPN: low, Asked: 1, Errno: errno}
	switch trouble >> 56 {
	case C.RMH_POLL:
		return &verbs.PollError{Device: d.name, Result: int(int32(low)), Asked: C.RMH_BATCH}
	case C.RMH_POST_SEND:
		post.Call = "post_send"
	case C.RMH_POST_RECV:
		post.Call = "post_recv"
	default:
		return fmt.Errorf("the helper process of %s reports a fault of unknown kind %d: %w", d.name, trouble>>56, errno)
	}
	return post
}
