//go:build cgo && (linux || darwin)

package helper

/*
#cgo LDFLAGS: -lpthread
#include "rm_loop.h"
*/
import "C"

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"ringmaster/distributed/rdma/verbs"
)

// loop is the thread that serves the rings; see rm_loop.h.
type loop struct {
	raw     *C.struct_rmh_loop
	running sync.WaitGroup
	once    sync.Once
}

// newLoop starts the thread; a byte on the socket wakes it through bell.
func newLoop(bell mapping, socket *os.File, spin int64) *loop {
	l := &loop{raw: C.rmh_loop_new((*C.struct_rmh_bell)(bell.at()), C.int(socket.Fd()), C.int64_t(spin))}
	if l.raw == nil {
		return nil
	}
	l.running.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		C.rmh_loop_run(l.raw)
	})
	return l
}

// stop ends the thread; it may be called again.
func (l *loop) stop() {
	l.once.Do(func() {
		C.rmh_loop_stop(l.raw)
		l.running.Wait()
	})
}

func ringAt(m mapping) *C.struct_rmh_ring { return (*C.struct_rmh_ring)(m.at()) }

func cqOf(q *verbs.CQ) *C.struct_rmv_cq { return (*C.struct_rmv_cq)(q.Handle()) }
func qpOf(q *verbs.QP) *C.struct_rmv_qp { return (*C.struct_rmv_qp)(q.Handle()) }

// errnoOf turns a result of C into an error.
func errnoOf(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return syscall.Errno(rc)
}

func (l *loop) addCQ(q *verbs.CQ, ring mapping, slots uint64) error {
	return errnoOf(C.rmh_loop_add_cq(l.raw, cqOf(q), ringAt(ring), C.uint64_t(slots)))
}

func (l *loop) addQP(q *verbs.QP, send, recv *verbs.CQ, ring mapping, slots uint64) error {
	return errnoOf(C.rmh_loop_add_qp(l.raw, qpOf(q), cqOf(send), cqOf(recv), ringAt(ring), C.uint64_t(slots)))
}

func (l *loop) addMR(m *verbs.MR, there uint64) error {
	here := m.Bytes()
	return errnoOf(C.rmh_loop_add_mr(l.raw, C.uint32_t(m.LKey()), C.uint64_t(there), (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(here))), C.uint64_t(len(here))))
}

func (l *loop) removeCQ(q *verbs.CQ) { C.rmh_loop_remove_cq(l.raw, cqOf(q)) }
func (l *loop) removeQP(q *verbs.QP) { C.rmh_loop_remove_qp(l.raw, qpOf(q)) }
func (l *loop) removeMR(m *verbs.MR) { C.rmh_loop_remove_mr(l.raw, C.uint32_t(m.LKey())) }
func (l *loop) settle(q *verbs.QP)   { C.rmh_loop_settle(l.raw, qpOf(q)) }
