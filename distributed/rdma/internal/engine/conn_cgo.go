//go:build cgo && (linux || darwin)

package engine

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O3 -Wall -Wextra
#include <stdlib.h>
#include "rm_engine.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

// handle is the struct rme_conn of a connection.
type handle struct{ c *C.struct_rme_conn }

// Checks of the constants that C defines too.
var (
	_ [C.RME_MAX_SLOTS]byte     = [MaxSlots]byte{}
	_ [C.RME_HEADERS]byte       = [SendHeaders]byte{}
	_ [C.RME_CREDIT_WRITES]byte = [CreditWrites]byte{}
)

// Open makes the C side of a connection. The slots of the layout may be smaller
// than those for which the memory was divided.
func (c *Conn) Open(epoch uint32, l Layout) error {
	x := (*C.struct_rme_conn)(C.calloc(1, C.sizeof_struct_rme_conn))
	if x == nil {
		return fmt.Errorf("%w: no memory", distributed.ErrUnavailable)
	}
	place := func(off int) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(&c.Mem[off])) }
	headers := 2 * l.Slots * l.SlotBytes
	x.qp, x.cq = (*C.struct_rmv_qp)(c.QP.Handle()), (*C.struct_rmv_cq)(c.CQ.Handle())
	x.send, x.recv = place(0), place(l.RecvOffset())
	x.header_send, x.header_recv = place(headers), place(headers+SendHeaders*l.HeaderBytes)
	x.lkey, x.slot_bytes, x.header_bytes = C.uint32_t(c.MR.LKey()), C.uint32_t(l.SlotBytes), C.uint32_t(l.HeaderBytes)
	x.slots, x.peer, x.rail, x.epoch = C.int32_t(l.Slots), C.int32_t(c.Peer), C.int32_t(c.Rail), C.uint32_t(epoch)
	c.c = x
	return nil
}

// Free frees what Open made; the queue pair must already be destroyed.
func (c *Conn) Free() {
	C.free(unsafe.Pointer(c.c))
	c.c = nil
}

// CreditAddress returns the address of the word in which the peer announces its
// receives.
func (c *Conn) CreditAddress() uint64 {
	return c.MR.Address(&c.Mem[c.creditWords()])
}

// UseCredits makes this side announce its receives by writing to an address of
// the peer, and send no message before the peer has announced a receive.
func (c *Conn) UseCredits(peer uint64, key uint32) {
	c.c.credits = (*C.uint64_t)(unsafe.Pointer(&c.Mem[c.creditWords()]))
	c.c.credit_words = (*C.uint8_t)(unsafe.Pointer(&c.Mem[c.creditWords()+C.RME_CREDIT_STEP]))
	c.c.peer_credits, c.c.peer_credits_key = C.uint64_t(peer), C.uint32_t(key)
}

// SendCredit announces the receives posted so far: 0 or an errno.
func (c *Conn) SendCredit() int { return int(C.rme_send_credit(c.c, 0)) }

// CreditSent notes the completion of an announcement; false if the completion
// belongs to something else.
func (c *Conn) CreditSent(id uint64) bool { return C.rme_credit_sent(c.c, C.uint64_t(id)) != 0 }

// HasCredit reports whether a message may be sent, because the peer has
// announced a receive or need not.
func (c *Conn) HasCredit() bool { return c.c.credits == nil || C.rme_credits(c.c) > 0 }

// PostHeader posts the standing receive of a header: 0 or an errno.
func (c *Conn) PostHeader() int { return int(C.rme_post_header(c.c, 0)) }

// drain waits for the sends in flight and returns how many are left.
func (c *Conn) drain(limit time.Duration) int { return int(C.rme_drain(c.c, C.int64_t(limit))) }

// newFlag makes a flag that stops tasks. It lies outside Go's heap, because C
// keeps its address.
func newFlag() *int32   { return (*int32)(C.calloc(1, 64)) }
func freeFlag(f *int32) { C.free(unsafe.Pointer(f)) }

// scratchMemory is memory that the tasks of an engine share.
type scratchMemory struct {
	p unsafe.Pointer
	n int64
}

func (s *scratchMemory) grow(n int64) {
	if n <= s.n {
		return
	}
	C.free(s.p)
	s.p, s.n = C.malloc(C.size_t(n)), n // cgo's malloc panics if memory has run out
}

func (s *scratchMemory) free() {
	C.free(s.p)
	s.p, s.n = nil, 0
}

func completion(c *C.struct_rmv_wc) verbs.WC {
	return verbs.WC{ID: uint64(c.wr_id), Status: verbs.Status(c.status), Opcode: uint32(c.opcode), VendorErr: uint32(c.vendor_err),
		ByteLen: uint32(c.byte_len), QPN: uint32(c.qp_num)}
}

// scan searches for the cause of a flush.
func scan(conns []*Conn, limit time.Duration) (fault, bool) {
	all := make([]*C.struct_rme_conn, len(conns))
	for i, c := range conns {
		all[i] = c.c
	}
	var f C.struct_rme_fail
	if len(conns) == 0 || C.rme_scan(unsafe.SliceData(all), C.int(len(all)), C.int64_t(limit), &f) == 0 {
		return fault{}, false
	}
	return fault{kind: int(f.kind), conn: conns[f.conn], wc: completion(&f.wc)}, true
}
