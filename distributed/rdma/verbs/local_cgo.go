//go:build cgo && (linux || darwin) && !static

package verbs

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra
#cgo linux LDFLAGS: -ldl
#cgo noescape rmv_post
#cgo nocallback rmv_post
#cgo noescape rmv_poll
#cgo nocallback rmv_poll
#include <stdlib.h>
#include "rm_lib.h"
*/
import "C"

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// local is the provider that calls the library in this process.
type local struct{ lib *C.struct_rmv_lib }

// localCalls are its calls on an open device.
type localCalls struct {
	lib *C.struct_rmv_lib
	ctx *C.struct_rmv_context
}

// openLocal loads the library of a path, or says why it cannot.
func openLocal(path string) (Provider, string) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var why [512]C.char
	lib := C.rmv_open(p, &why[0], C.size_t(len(why)))
	if lib == nil {
		return nil, C.GoString(&why[0])
	}
	return local{lib}, ""
}

func (l local) Where() string { return "in this process" }

func (l local) Close(lost bool) {
	if !lost {
		C.rmv_close(l.lib)
	}
}

func (l local) Devices() ([]string, int) {
	buf := make([]byte, 1<<14)
	n := C.rmv_device_names(l.lib, (*C.char)(unsafe.Pointer(&buf[0])), C.size_t(len(buf)))
	if n < 0 {
		return nil, int(-n)
	}
	text, _, _ := strings.Cut(string(buf), "\x00")
	return strings.Fields(text), 0
}

func (l local) Open(name string) (Calls, int) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	var errno C.int
	ctx := C.rmv_open_device(l.lib, s, &errno)
	if ctx == nil {
		return nil, int(errno)
	}
	return localCalls{l.lib, ctx}, 0
}

func (c localCalls) NewSlab(n int) (*Slab, error) { return NewSlab(n) }
func (c localCalls) Settle(unsafe.Pointer) int    { return 0 }
func (c localCalls) Fault(unsafe.Pointer) error   { return nil }
func (c localCalls) Lost() <-chan struct{}        { return nil }
func (c localCalls) Err() error                   { return nil }

func (c localCalls) Close() int {
	return int(C.rmv_close_device(c.lib, c.ctx))
}

func (c localCalls) QueryDevice() (DeviceAttr, int) {
	var a C.struct_rmv_device_attr
	rc := C.rmv_query_device(c.lib, c.ctx, &a)
	var guid [8]byte
	binary.NativeEndian.PutUint64(guid[:], uint64(a.node_guid))
	return DeviceAttr{
		NodeGUID: binary.BigEndian.Uint64(guid[:]), MaxMRSize: uint64(a.max_mr_size),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxPD: int(a.max_pd),
		Ports: int(a.phys_port_cnt), PageSizes: uint64(a.page_size_cap),
		VendorID: uint32(a.vendor_id), VendorPart: uint32(a.vendor_part_id),
	}, int(rc)
}

func (c localCalls) QueryPort(port int) (PortAttr, int) {
	var a C.struct_rmv_port_attr
	rc := C.rmv_query_port(c.lib, c.ctx, C.int(port), &a)
	return PortAttr{
		State: PortState(a.state), MaxMTU: MTU(a.max_mtu), ActiveMTU: MTU(a.active_mtu),
		GIDs: int(a.gid_tbl_len), MaxMsg: uint32(a.max_msg_sz), LID: uint16(a.lid), LinkLayer: LinkLayer(a.link_layer),
	}, int(rc)
}

func (c localCalls) QueryGID(port, index int) (GID, GIDType, int) {
	var g GID
	var kind C.int
	rc := C.rmv_query_gid(c.lib, c.ctx, C.int(port), C.int(index), (*C.uint8_t)(&g[0]), &kind)
	return g, GIDType(kind), int(rc)
}

func (c localCalls) AllocPD() (unsafe.Pointer, int) {
	var errno C.int
	pd := C.rmv_alloc_pd(c.lib, c.ctx, &errno)
	return unsafe.Pointer(pd), int(errno)
}

func (c localCalls) DeallocPD(pd unsafe.Pointer) int {
	return int(C.rmv_dealloc_pd(c.lib, (*C.struct_rmv_pd)(pd)))
}

func (c localCalls) RegMR(pd unsafe.Pointer, s *Slab, access Access) (Region, int) {
	mem := s.Bytes()
	var errno C.int
	mr := C.rmv_reg_mr(c.lib, (*C.struct_rmv_pd)(pd), unsafe.Pointer(&mem[0]), C.size_t(len(mem)), C.int(access), &errno)
	if mr == nil {
		return Region{}, int(errno)
	}
	return Region{Handle: unsafe.Pointer(mr), LKey: uint32(mr.lkey), RKey: uint32(mr.rkey), Base: s.address()}, 0
}

func (c localCalls) DeregMR(mr unsafe.Pointer) int {
	return int(C.rmv_dereg_mr(c.lib, (*C.struct_rmv_mr)(mr)))
}

func (c localCalls) CreateCQ(n int) (unsafe.Pointer, int) {
	var errno C.int
	cq := C.rmv_create_cq(c.lib, c.ctx, C.int(n), &errno)
	return unsafe.Pointer(cq), int(errno)
}

func (c localCalls) DestroyCQ(cq unsafe.Pointer) int {
	return int(C.rmv_destroy_cq(c.lib, (*C.struct_rmv_cq)(cq)))
}

func (c localCalls) CreateQP(pd, sendCQ, recvCQ unsafe.Pointer, kind QPType, asked Caps) (unsafe.Pointer, uint32, int) {
	depths := C.struct_rmv_qp_cap{
		max_send_wr: C.uint32_t(asked.SendWR), max_recv_wr: C.uint32_t(asked.RecvWR),
		max_send_sge: 1, max_recv_sge: 1, max_inline_data: C.uint32_t(asked.Inline),
	}
	var errno C.int
	qp := C.rmv_create_qp(c.lib, (*C.struct_rmv_pd)(pd), (*C.struct_rmv_cq)(sendCQ), (*C.struct_rmv_cq)(recvCQ), C.int(kind), &depths, &errno)
	if qp == nil {
		return nil, 0, int(errno)
	}
	return unsafe.Pointer(qp), uint32(qp.qp_num), 0
}

func (c localCalls) DestroyQP(qp unsafe.Pointer) int {
	return int(C.rmv_destroy_qp(c.lib, (*C.struct_rmv_qp)(qp)))
}

func (c localCalls) ModifyQP(qp unsafe.Pointer, t Transition) int {
	var to C.struct_rmv_qp_attr
	to.qp_state = C.uint32_t(t.State)
	to.qp_access_flags = C.uint32_t(t.Access)
	to.port_num = C.uint8_t(t.Port)
	to.path_mtu = C.uint32_t(t.MTU)
	to.rq_psn, to.sq_psn, to.dest_qp_num = C.uint32_t(t.RQPSN), C.uint32_t(t.SQPSN), C.uint32_t(t.DestQPN)
	*(*GID)(unsafe.Pointer(&to.ah_attr.dgid)) = t.GID
	to.ah_attr.sgid_index, to.ah_attr.hop_limit = C.uint8_t(t.SGIDIndex), C.uint8_t(t.HopLimit)
	to.ah_attr.is_global, to.ah_attr.dlid, to.ah_attr.port_num = C.uint8_t(t.Global), C.uint16_t(t.LID), C.uint8_t(t.Port)
	to.timeout, to.retry_cnt, to.rnr_retry = C.uint8_t(t.Timeout), C.uint8_t(t.Retry), C.uint8_t(t.RNR)
	to.min_rnr_timer, to.max_rd_atomic, to.max_dest_rd_atomic = C.uint8_t(t.MinRNR), C.uint8_t(t.MaxRD), C.uint8_t(t.DestRD)
	return int(C.rmv_modify_qp(c.lib, (*C.struct_rmv_qp)(qp), &to, C.int(t.Mask)))
}

func (c localCalls) QueryQP(qp unsafe.Pointer) (Caps, QPState, int) {
	var depths C.struct_rmv_qp_cap
	var state C.uint32_t
	rc := C.rmv_query_qp_cap(c.lib, (*C.struct_rmv_qp)(qp), &depths, &state)
	return Caps{SendWR: int(depths.max_send_wr), RecvWR: int(depths.max_recv_wr), Inline: int(depths.max_inline_data)}, QPState(state), int(rc)
}

func (c localCalls) Post(qp unsafe.Pointer, send bool, reqs []Request) (int, int) {
	var errno, sends C.int
	if send {
		sends = 1
	}
	n := C.rmv_post((*C.struct_rmv_qp)(qp), sends, (*C.struct_rmv_request)(unsafe.Pointer(&reqs[0])), C.int(len(reqs)), &errno)
	return int(n), int(errno)
}

func (c localCalls) Poll(cq unsafe.Pointer, out []WC) int {
	return int(C.rmv_poll((*C.struct_rmv_cq)(cq), C.int(len(out)), (*C.struct_rmv_wc)(unsafe.Pointer(&out[0]))))
}
