//go:build cgo && (linux || darwin)

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

func rawOpen(path string) (rawLib, string) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var why [512]C.char
	lib := C.rmv_open(p, &why[0], C.size_t(len(why)))
	if lib == nil {
		return rawLib{}, C.GoString(&why[0])
	}
	return rawLib{unsafe.Pointer(lib)}, ""
}

func rawClose(l rawLib) { C.rmv_close(l.c()) }

func (l rawLib) c() *C.struct_rmv_lib { return (*C.struct_rmv_lib)(l.p) }

func rawDeviceNames(l rawLib) ([]string, int) {
	buf := make([]byte, 1<<14)
	n := C.rmv_device_names(l.c(), (*C.char)(unsafe.Pointer(&buf[0])), C.size_t(len(buf)))
	if n < 0 {
		return nil, int(-n)
	}
	text, _, _ := strings.Cut(string(buf), "\x00")
	return strings.Fields(text), 0
}

func rawOpenDevice(l rawLib, name string) (unsafe.Pointer, int) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	var errno C.int
	ctx := C.rmv_open_device(l.c(), s, &errno)
	return unsafe.Pointer(ctx), int(errno)
}

func context(p unsafe.Pointer) *C.struct_rmv_context { return (*C.struct_rmv_context)(p) }

func rawCloseDevice(l rawLib, ctx unsafe.Pointer) int {
	return int(C.rmv_close_device(l.c(), context(ctx)))
}

func rawQueryDevice(l rawLib, ctx unsafe.Pointer) (DeviceAttr, int) {
	var a C.struct_rmv_device_attr
	rc := C.rmv_query_device(l.c(), context(ctx), &a)
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

func rawQueryPort(l rawLib, ctx unsafe.Pointer, port int) (PortAttr, int) {
	var a C.struct_rmv_port_attr
	rc := C.rmv_query_port(l.c(), context(ctx), C.int(port), &a)
	return PortAttr{
		State: PortState(a.state), MaxMTU: MTU(a.max_mtu), ActiveMTU: MTU(a.active_mtu),
		GIDs: int(a.gid_tbl_len), MaxMsg: uint32(a.max_msg_sz), LID: uint16(a.lid), LinkLayer: LinkLayer(a.link_layer),
	}, int(rc)
}

func rawQueryGID(l rawLib, ctx unsafe.Pointer, port, index int) (GID, GIDType, int) {
	var g GID
	var kind C.int
	rc := C.rmv_query_gid(l.c(), context(ctx), C.int(port), C.int(index), (*C.uint8_t)(&g[0]), &kind)
	return g, GIDType(kind), int(rc)
}

func rawAllocPD(l rawLib, ctx unsafe.Pointer) (unsafe.Pointer, int) {
	var errno C.int
	pd := C.rmv_alloc_pd(l.c(), context(ctx), &errno)
	return unsafe.Pointer(pd), int(errno)
}

func rawDeallocPD(l rawLib, pd unsafe.Pointer) int {
	return int(C.rmv_dealloc_pd(l.c(), (*C.struct_rmv_pd)(pd)))
}

func rawRegMR(l rawLib, pd unsafe.Pointer, mem []byte, access int) (raw unsafe.Pointer, lkey, rkey uint32, failed int) {
	var errno C.int
	mr := C.rmv_reg_mr(l.c(), (*C.struct_rmv_pd)(pd), unsafe.Pointer(&mem[0]), C.size_t(len(mem)), C.int(access), &errno)
	if mr == nil {
		return nil, 0, 0, int(errno)
	}
	return unsafe.Pointer(mr), uint32(mr.lkey), uint32(mr.rkey), 0
}

func rawDeregMR(l rawLib, mr unsafe.Pointer) int {
	return int(C.rmv_dereg_mr(l.c(), (*C.struct_rmv_mr)(mr)))
}

func rawCreateCQ(l rawLib, ctx unsafe.Pointer, n int) (unsafe.Pointer, int) {
	var errno C.int
	cq := C.rmv_create_cq(l.c(), context(ctx), C.int(n), &errno)
	return unsafe.Pointer(cq), int(errno)
}

func rawDestroyCQ(l rawLib, cq unsafe.Pointer) int {
	return int(C.rmv_destroy_cq(l.c(), (*C.struct_rmv_cq)(cq)))
}

func rawCreateQP(l rawLib, pd, sendCQ, recvCQ unsafe.Pointer, kind int, caps Caps) (unsafe.Pointer, uint32, int) {
	c := C.struct_rmv_qp_cap{
		max_send_wr: C.uint32_t(caps.SendWR), max_recv_wr: C.uint32_t(caps.RecvWR),
		max_send_sge: 1, max_recv_sge: 1, max_inline_data: C.uint32_t(caps.Inline),
	}
	var errno C.int
	qp := C.rmv_create_qp(l.c(), (*C.struct_rmv_pd)(pd), (*C.struct_rmv_cq)(sendCQ), (*C.struct_rmv_cq)(recvCQ), C.int(kind), &c, &errno)
	if qp == nil {
		return nil, 0, int(errno)
	}
	return unsafe.Pointer(qp), uint32(qp.qp_num), 0
}

func rawDestroyQP(l rawLib, qp unsafe.Pointer) int {
	return int(C.rmv_destroy_qp(l.c(), (*C.struct_rmv_qp)(qp)))
}

func rawModifyQP(l rawLib, qp unsafe.Pointer, a Transition) int {
	var c C.struct_rmv_qp_attr
	c.qp_state = C.uint32_t(a.State)
	c.qp_access_flags = C.uint32_t(a.Access)
	c.port_num = C.uint8_t(a.Port)
	c.path_mtu = C.uint32_t(a.MTU)
	c.rq_psn, c.sq_psn, c.dest_qp_num = C.uint32_t(a.RQPSN), C.uint32_t(a.SQPSN), C.uint32_t(a.DestQPN)
	*(*GID)(unsafe.Pointer(&c.ah_attr.dgid)) = a.GID
	c.ah_attr.sgid_index, c.ah_attr.hop_limit = C.uint8_t(a.SGIDIndex), C.uint8_t(a.HopLimit)
	c.ah_attr.is_global, c.ah_attr.dlid, c.ah_attr.port_num = C.uint8_t(a.Global), C.uint16_t(a.LID), C.uint8_t(a.Port)
	c.timeout, c.retry_cnt, c.rnr_retry = C.uint8_t(a.Timeout), C.uint8_t(a.Retry), C.uint8_t(a.RNR)
	c.min_rnr_timer, c.max_rd_atomic, c.max_dest_rd_atomic = C.uint8_t(a.MinRNR), C.uint8_t(a.MaxRD), C.uint8_t(a.DestRD)
	return int(C.rmv_modify_qp(l.c(), (*C.struct_rmv_qp)(qp), &c, C.int(a.Mask)))
}

func rawQueryQP(l rawLib, qp unsafe.Pointer) (Caps, QPState, int) {
	var c C.struct_rmv_qp_cap
	var state C.uint32_t
	rc := C.rmv_query_qp_cap(l.c(), (*C.struct_rmv_qp)(qp), &c, &state)
	return Caps{SendWR: int(c.max_send_wr), RecvWR: int(c.max_recv_wr), Inline: int(c.max_inline_data)}, QPState(state), int(rc)
}

func rawPost(qp unsafe.Pointer, send bool, reqs []Request) (int, int) {
	var errno, sends C.int
	if send {
		sends = 1
	}
	n := C.rmv_post((*C.struct_rmv_qp)(qp), sends, (*C.struct_rmv_request)(unsafe.Pointer(&reqs[0])), C.int(len(reqs)), &errno)
	return int(n), int(errno)
}

func rawPoll(cq unsafe.Pointer, out []WC) int {
	return int(C.rmv_poll((*C.struct_rmv_cq)(cq), C.int(len(out)), (*C.struct_rmv_wc)(unsafe.Pointer(&out[0]))))
}
