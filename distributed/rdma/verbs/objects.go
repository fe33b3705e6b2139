package verbs

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"ringmaster/distributed"
)

// PD is a protection domain, which queue pairs and memory must share.
type PD struct{ object }

// AllocPD makes a protection domain; one per device is enough. It fails when
// the port is down.
func (c *Context) AllocPD() (*PD, error) {
	if _, err := c.self.handle("alloc_pd"); err != nil {
		return nil, err
	}
	m, err := bounded(c.lib, "alloc_pd", c.device, func() answer[unsafe.Pointer] {
		raw, errno := c.calls.AllocPD()
		return answer[unsafe.Pointer]{raw, errno}
	})
	if err != nil {
		return nil, err
	}
	if m.value == nil {
		detail := ""
		if a, err := c.Port(1); err == nil {
			detail = fmt.Sprintf("no protection domain, port 1 is %v", a.State)
		}
		return nil, c.failed("alloc_pd", m.errno, detail)
	}
	p := &PD{object{ctx: c, raw: m.value}}
	keep(c, &c.pds, p)
	return p, nil
}

// Close frees the domain; its objects must be destroyed before.
func (p *PD) Close() error {
	err := p.destroy("dealloc_pd", func(raw unsafe.Pointer) int { return p.ctx.calls.DeallocPD(raw) })
	if err == nil {
		drop(p.ctx, &p.ctx.pds, p)
	}
	return err
}

// Access is the set of rights of a memory region.
type Access int

// The rights. AccessAuto is all three if the device accepts them, otherwise local
// writing. It is needed because one driver refuses memory without the remote
// rights, although it has no operation that uses them, and another refuses memory
// with them.
const (
	AccessLocalWrite  Access = 1
	AccessRemoteWrite Access = 2
	AccessRemoteRead  Access = 4
	AccessAuto        Access = -1
)

// MR is registered memory.
type MR struct {
	object
	mem    []byte
	region Region
}

// RegMR registers the whole memory of a slab, because devices have few regions. The
// slab must stay mapped until Close.
func (p *PD) RegMR(s *Slab, access Access) (*MR, error) {
	mem := s.Bytes()
	if len(mem) == 0 {
		return nil, fmt.Errorf("%w: verbs: reg_mr: the slab is empty or freed", distributed.ErrArgument)
	}
	try := []Access{access}
	if access == AccessAuto {
		try = []Access{AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead, AccessLocalWrite}
	}
	pd, err := p.handle("reg_mr")
	if err != nil {
		return nil, err
	}
	errno := 0
	for _, a := range try {
		r, err := bounded(p.ctx.lib, "reg_mr", p.ctx.device, func() answer[Region] {
			region, errno := p.ctx.calls.RegMR(pd, s, a)
			return answer[Region]{region, errno}
		})
		if err != nil {
			return nil, err
		}
		if r.value.Handle != nil {
			m := &MR{object: object{ctx: p.ctx, raw: r.value.Handle}, mem: mem, region: r.value}
			keep(p.ctx, &p.ctx.mrs, m)
			return m, nil
		}
		errno = r.errno
	}
	return nil, p.ctx.failed("reg_mr", errno, fmt.Sprintf("%d bytes not registered", len(mem)))
}

// LKey returns the key by which requests name the region.
func (m *MR) LKey() uint32 { return m.region.LKey }

// RKey returns the key by which peers name the region.
func (m *MR) RKey() uint32 { return m.region.RKey }

// Address returns where peers find a byte of the region. It may differ from this
// process's address, because another process may have registered the region.
func (m *MR) Address(b *byte) uint64 {
	return m.region.Base + uint64(uintptr(unsafe.Pointer(b))-uintptr(unsafe.Pointer(unsafe.SliceData(m.mem))))
}

// Bytes returns the registered memory.
func (m *MR) Bytes() []byte { return m.mem }

// Request returns a request for n bytes at an offset of the region.
func (m *MR) Request(id uint64, off, n int) Request {
	return Request{ID: id, Addr: uintptr(unsafe.Pointer(unsafe.SliceData(m.mem[off : off+n]))), Len: uint32(n), LKey: m.region.LKey}
}

// Close ends the registration.
func (m *MR) Close() error {
	err := m.destroy("dereg_mr", func(raw unsafe.Pointer) int { return m.ctx.calls.DeregMR(raw) })
	if err == nil {
		drop(m.ctx, &m.ctx.mrs, m)
	}
	return err
}

// CQ is a completion queue.
type CQ struct{ object }

// CreateCQ makes a queue for n completions. It must be larger than the number of
// requests that may be posted, because an overrun queue is dead.
func (c *Context) CreateCQ(n int) (*CQ, error) {
	if _, err := c.self.handle("create_cq"); err != nil {
		return nil, err
	}
	m, err := bounded(c.lib, "create_cq", c.device, func() answer[unsafe.Pointer] {
		raw, errno := c.calls.CreateCQ(n)
		return answer[unsafe.Pointer]{raw, errno}
	})
	if err != nil {
		return nil, err
	}
	if m.value == nil {
		return nil, c.failed("create_cq", m.errno, fmt.Sprintf("no queue for %d completions", n))
	}
	q := &CQ{object{ctx: c, raw: m.value}}
	keep(c, &c.cqs, q)
	return q, nil
}

// Handle returns the struct rmv_cq * for C, valid until Destroy.
func (q *CQ) Handle() unsafe.Pointer { return q.raw }

// Poll takes up to len(out) completions. An error is a *PollError: the queue has
// failed. The caller must still check the statuses; see Cause.
func (q *CQ) Poll(out []WC) (int, error) {
	if len(out) == 0 {
		return 0, nil
	}
	raw, err := q.handle("poll_cq")
	if err != nil {
		return 0, err
	}
	n := q.ctx.calls.Poll(raw, out)
	if n < 0 || n > len(out) {
		if why := q.Fault(); why != nil {
			return 0, why
		}
		return 0, &PollError{Device: q.ctx.device, Result: n, Asked: len(out)}
	}
	return n, nil
}

// Fault returns what broke the queue, or a queue pair of it, when a poll or post in
// C failed and could not say why: the helper process ended, or an earlier post was
// refused. It returns nil if no more is known.
func (q *CQ) Fault() error {
	raw, err := q.handle("poll_cq")
	if err != nil {
		return nil
	}
	return q.ctx.calls.Fault(raw)
}

// Destroy ends the queue; no queue pair may use it.
func (q *CQ) Destroy() error {
	err := q.destroy("destroy_cq", func(raw unsafe.Pointer) int { return q.ctx.calls.DestroyCQ(raw) })
	if err == nil {
		drop(q.ctx, &q.ctx.cqs, q)
	}
	return err
}

// QPConfig is the configuration of a queue pair.
type QPConfig struct {
	Type           QPType
	SendCQ, RecvCQ *CQ
	Caps           Caps // asked for
}

// QP is a queue pair.
type QP struct {
	object
	kind    QPType
	num     uint32
	granted Caps
}

// CreateQP makes a queue pair and reads back the granted depths, which may be less
// or more than requested.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	type result struct {
		answer[unsafe.Pointer]
		num uint32
	}
	c := p.ctx
	pd, err := p.handle("create_qp")
	if err != nil {
		return nil, err
	}
	sendCQ, err := cfg.SendCQ.handle("create_qp")
	if err != nil {
		return nil, err
	}
	recvCQ, err := cfg.RecvCQ.handle("create_qp")
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("no %v queue pair of %d sends and %d receives", cfg.Type, cfg.Caps.SendWR, cfg.Caps.RecvWR)
	r, err := bounded(c.lib, "create_qp", c.device, func() result {
		raw, num, errno := c.calls.CreateQP(pd, sendCQ, recvCQ, cfg.Type, cfg.Caps)
		return result{answer[unsafe.Pointer]{raw, errno}, num}
	})
	if err != nil {
		return nil, err
	}
	if r.value == nil {
		return nil, c.failed("create_qp", r.errno, what)
	}
	q := &QP{object: object{ctx: c, raw: r.value}, kind: cfg.Type, num: r.num}
	keep(c, &c.qps, q)
	if q.granted, _, err = q.Query(); err != nil {
		if e := q.Destroy(); e != nil {
			return nil, fmt.Errorf("%w (and then %w)", err, e)
		}
		return nil, err
	}
	return q, nil
}

// Handle returns the struct rmv_qp * for C, valid until Destroy.
func (q *QP) Handle() unsafe.Pointer { return q.raw }

// Num returns the number that the peer sends to.
func (q *QP) Num() uint32 { return q.num }

// Granted returns the granted depths. On Thunderbolt they count frames of 4 KiB.
func (q *QP) Granted() Caps { return q.granted }

// Query returns the granted depths and the state.
func (q *QP) Query() (Caps, QPState, error) {
	type result struct {
		caps  Caps
		state QPState
	}
	raw, err := q.handle("query_qp")
	if err != nil {
		return Caps{}, 0, err
	}
	r, err := ask(q.ctx, "query_qp", func() (r result, errno int) {
		r.caps, r.state, errno = q.ctx.calls.QueryQP(raw)
		return r, errno
	})
	return r.caps, r.state, err
}

// Apply makes a transition with given attributes. Only a process that makes the
// calls of another one uses it; all others use Init, RTR and RTS.
func (q *QP) Apply(t Transition) error { return q.modify(QPState(t.State), t, t.Mask, "") }

// modify runs one transition.
func (q *QP) modify(to QPState, a Transition, mask int, detail string) error {
	a.Mask = mask
	call := "modify_qp to " + to.String()
	raw, err := q.handle(call)
	if err != nil {
		return err
	}
	errno, err := bounded(q.ctx.lib, call, q.ctx.device, func() int { return q.ctx.calls.ModifyQP(raw, a) })
	if err != nil {
		return err
	}
	if errno != 0 {
		return q.ctx.failed(call, errno, detail)
	}
	return nil
}

// The masks of the attributes that each transition takes: enum ibv_qp_attr_mask.
const (
	maskState   = 1
	maskAccess  = 8
	maskPKey    = 16
	maskPort    = 32
	maskAV      = 128
	maskMTU     = 256
	maskTimeout = 512
	maskRetry   = 1024
	maskRNR     = 2048
	maskRQPSN   = 4096
	maskRD      = 8192
	maskMinRNR  = 32768
	maskSQPSN   = 65536
	maskDestRD  = 131072
	maskDestQPN = 1048576
)

// minRNRTimer is the wait that a receiver without a posted receive requests: 12 is
// 0.64 ms (InfiniBand architecture, table of RNR NAK timers).
const minRNRTimer = 12

// Init prepares the queue pair for posted receives (not on every device) and for
// RTR. After any failure here or later the caller must destroy the queue pair and
// not try it again.
func (q *QP) Init(port int) error {
	a := Transition{State: int(StateInit), Port: max(port, 1), Access: int(AccessLocalWrite)}
	if q.kind == UC {
		a.Access |= int(AccessRemoteWrite | AccessRemoteRead)
	}
	return q.modify(StateInit, a, maskState|maskPKey|maskPort|maskAccess, "")
}

// RTR joins the queue pair to its peer; messages can then arrive.
func (q *QP) RTR(r Route) error {
	if r.SGIDIndex < 0 || r.SGIDIndex > math.MaxUint8 || r.HopLimit < 0 || r.HopLimit > math.MaxUint8 || r.PathMTU.Bytes() == 0 {
		return fmt.Errorf("%w: verbs: route of qp %#x: GID index %d, hop limit %d, MTU %d", distributed.ErrArgument, q.num, r.SGIDIndex, r.HopLimit, r.PathMTU)
	}
	a := Transition{
		State: int(StateRTR), MTU: int(r.PathMTU), DestQPN: r.PeerQPN, RQPSN: r.PeerPSN,
		Port: max(r.Port, 1), LID: r.PeerLID,
	}
	mask := maskState | maskAV | maskMTU | maskDestQPN | maskRQPSN
	if r.Global {
		a.Global, a.GID, a.SGIDIndex, a.HopLimit = 1, r.PeerGID, r.SGIDIndex, r.HopLimit
		if a.HopLimit == 0 {
			if a.HopLimit = 64; q.kind == UC {
				a.HopLimit = 1
			}
		}
	}
	if q.kind == RC {
		a.DestRD, a.MinRNR = 1, minRNRTimer
		mask |= maskDestRD | maskMinRNR
	}
	return q.modify(StateRTR, a, mask, fmt.Sprintf("qp %#x to qp %#x at %v over our GID %d, MTU %d",
		q.num, r.PeerQPN, r.PeerGID, r.SGIDIndex, r.PathMTU.Bytes()))
}

// RTS lets the queue pair send; psn is the number of its first packet. UC has no
// retries.
func (q *QP) RTS(psn uint32, r Retries) error {
	a := Transition{State: int(StateRTS), SQPSN: psn}
	mask := maskState | maskSQPSN
	if q.kind == RC {
		a.Timeout, a.Retry, a.RNR, a.MaxRD = r.Timeout, r.Retry, r.RNR, 1
		mask |= maskTimeout | maskRetry | maskRNR | maskRD
	}
	return q.modify(StateRTS, a, mask, "")
}

// Destroy ends the queue pair, even if requests are posted.
func (q *QP) Destroy() error {
	err := q.destroy("destroy_qp", func(raw unsafe.Pointer) int { return q.ctx.calls.DestroyQP(raw) })
	if err == nil {
		drop(q.ctx, &q.ctx.qps, q)
	}
	return err
}

// PostSend posts messages in order, each signalled. It returns how many were
// posted. An error is a *PostError; requests posted before it complete.
func (q *QP) PostSend(reqs ...Request) (int, error) { return q.post("post_send", true, reqs) }

// PostRecv posts receives in order; see PostSend.
func (q *QP) PostRecv(reqs ...Request) (int, error) { return q.post("post_recv", false, reqs) }

func (q *QP) post(call string, send bool, reqs []Request) (int, error) {
	if len(reqs) == 0 {
		return 0, nil
	}
	raw, err := q.handle(call)
	if err != nil {
		return 0, err
	}
	n, errno := q.ctx.calls.Post(raw, send, reqs)
	if errno != 0 {
		if why := q.ctx.calls.Err(); why != nil {
			return n, fmt.Errorf("%s on %s: %w", call, q.ctx.device, why)
		}
		return n, &PostError{Call: call, Device: q.ctx.device, QPN: q.num, Posted: n, Asked: len(reqs), Errno: syscall.Errno(errno)}
	}
	return n, nil
}

// Settle waits until the device has received all requests posted from C. It is
// needed because posts through another process return earlier.
func (q *QP) Settle() error {
	raw, err := q.handle("post")
	if err != nil {
		return err
	}
	if errno := q.ctx.calls.Settle(raw); errno != 0 {
		return q.ctx.failed("post", errno, "")
	}
	return nil
}
