//go:build linux && cgo

package inguest

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"ringmaster/distributed/rdma/verbs"
)

// depth is the depth of the queues that the tests create.
const depth = 64

// limit bounds every wait in the guest. It is generous because the guest is
// slow.
const limit = 20 * time.Second

// end is one end of a connection: a device with one slab and one queue pair.
type end struct {
	lib  *verbs.Library
	ctx  *verbs.Context
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	slab *verbs.Slab
	mr   *verbs.MR
	gid  verbs.GIDEntry
	port verbs.PortAttr
	psn  uint32
}

// address is what the other end needs to know in order to connect.
type address struct {
	QPN, PSN uint32
	GID      verbs.GID
	MTU      verbs.MTU
}

// openEnd opens a device and creates a queue pair on it, ready for receives.
func openEnd(device string, kind verbs.QPType, bytes int) (e *end, err error) {
	e = &end{psn: 0x123456}
	defer func() {
		if err != nil {
			_ = e.close() // the first error is the one that is returned
		}
	}()
	if e.lib, err = verbs.Open(""); err != nil {
		return e, err
	}
	dev, err := e.lib.Device(device)
	if err != nil {
		return e, err
	}
	if e.ctx, err = dev.Open(); err != nil {
		return e, err
	}
	if e.port, err = e.ctx.Port(1); err != nil {
		return e, err
	}
	gids, err := e.ctx.GIDs(1)
	if err != nil {
		return e, err
	}
	if e.gid, err = verbs.FindIPv4GID(gids); err != nil {
		return e, err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return e, err
	}
	if e.cq, err = e.ctx.CreateCQ(4 * depth); err != nil {
		return e, err
	}
	if e.slab, err = verbs.NewSlab(bytes); err != nil {
		return e, err
	}
	if e.mr, err = e.pd.RegMR(e.slab, verbs.AccessAuto); err != nil {
		return e, err
	}
	err = e.renew(kind)
	return e, err
}

// renew replaces the queue pair by a new one on the open device.
func (e *end) renew(kind verbs.QPType) error {
	if e.qp != nil {
		if err := e.qp.Destroy(); err != nil {
			return err
		}
	}
	var err error
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: kind, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.Caps{SendWR: depth, RecvWR: depth}})
	if err != nil {
		return err
	}
	return e.qp.Init(1)
}

func (e *end) address() address {
	return address{QPN: e.qp.Num(), PSN: e.psn, GID: e.gid.GID, MTU: e.port.ActiveMTU}
}

// connect connects the queue pair to that of the address.
func (e *end) connect(to address, r verbs.Retries) error {
	err := e.qp.RTR(verbs.Route{
		PeerQPN: to.QPN, PeerPSN: to.PSN, PeerGID: to.GID, SGIDIndex: e.gid.Index, Global: true, PathMTU: min(to.MTU, e.port.ActiveMTU),
	})
	if err != nil {
		return err
	}
	return e.qp.RTS(e.psn, r)
}

// join connects two ends of this process to each other.
func join(a, b *end, r verbs.Retries) error {
	if err := a.connect(b.address(), r); err != nil {
		return err
	}
	return b.connect(a.address(), r)
}

func (e *end) close() error {
	var first error
	if e.ctx != nil {
		first = e.ctx.Close()
	}
	if first == nil && e.slab != nil {
		first = e.slab.Free()
	}
	if first == nil && e.lib != nil {
		first = e.lib.Close()
	}
	return first
}

// await polls until there are n completions, and returns them.
func (e *end) await(ctx context.Context, n int) ([]verbs.WC, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	got := make([]verbs.WC, 0, n)
	room := make([]verbs.WC, 16)
	for len(got) < n {
		k, err := e.cq.Poll(room[:min(len(room), n-len(got))])
		if err != nil {
			return got, err
		}
		got = append(got, room[:k]...)
		if k == 0 {
			if ctx.Err() != nil {
				return got, fmt.Errorf("%d of %d completions on %s: %w", len(got), n, e.ctx.Device(), context.Cause(ctx))
			}
			runtime.Gosched()
		}
	}
	return got, nil
}

// send posts one message from an offset of the slab.
func (e *end) send(id uint64, off, n int) error {
	_, err := e.qp.PostSend(e.mr.Request(id, off, n))
	return err
}

// recv posts a receive for one message.
func (e *end) recv(id uint64, off, n int) error {
	_, err := e.qp.PostRecv(e.mr.Request(id, off, n))
	return err
}
