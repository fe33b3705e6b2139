//go:build cgo && (linux || darwin)

package fakeverbs

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma/verbs"
)

func TestLimits(t *testing.T) {
	f := New(t, "device a\ndevice b host=1 link=ib max_pd=2 max_mr=3 max_cq=2 max_cqe=64 max_wr=16\n")
	lib := openLibrary(t, f)
	devices, err := lib.Devices()
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, []string{devices[0].Name, devices[1].Name})
	_, err = lib.Device("c")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "this host has a, b")

	a := openEnd(t, lib, "a", verbs.UC, 2) // its first queue pair and memory region
	attr, err := a.ctx.Query()
	require.NoError(t, err)
	require.Equal(t, []int{11, 4095, 1, 100, 11, 8192, 1}, []int{attr.MaxQP, attr.MaxQPWR, attr.MaxSGE, attr.MaxMR, attr.MaxPD, attr.MaxCQE, attr.Ports})
	require.EqualValues(t, 0x0200000000000001, attr.NodeGUID)
	cfg := verbs.QPConfig{Type: verbs.UC, SendCQ: a.cq, RecvCQ: a.cq, Caps: verbs.Caps{SendWR: 2, RecvWR: 2}}
	for range 9 {
		_, err = a.pd.CreateQP(cfg)
		require.NoError(t, err)
	}
	_, err = a.pd.CreateQP(cfg)
	require.ErrorIs(t, err, syscall.EBUSY, "the eleventh")
	require.ErrorContains(t, err, "10 on macOS 26, 3 on 27")
	require.NoError(t, a.qp.Destroy())
	_, err = a.pd.CreateQP(cfg)
	require.NoError(t, err)

	slab, err := verbs.NewSlab(1)
	require.NoError(t, err)
	for range 99 {
		_, err = a.pd.RegMR(slab, verbs.AccessAuto)
		require.NoError(t, err)
	}
	_, err = a.pd.RegMR(slab, verbs.AccessAuto)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Equal(t, 100, f.Count("mrs"))

	cfg.Type = verbs.RC
	_, err = a.pd.CreateQP(cfg)
	require.ErrorIs(t, err, syscall.Errno(102))
	cfg.Type, cfg.Caps.SendWR = verbs.UC, 4096
	_, err = a.pd.CreateQP(cfg)
	require.ErrorIs(t, err, syscall.EINVAL)

	b := openEnd(t, lib, "b", verbs.RC, 2)
	_, err = b.ctx.AllocPD()
	require.NoError(t, err)
	_, err = b.ctx.AllocPD()
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	_, err = b.ctx.CreateCQ(65)
	require.ErrorIs(t, err, syscall.EINVAL)
	_, err = b.ctx.CreateCQ(64)
	require.NoError(t, err)
	_, err = b.ctx.CreateCQ(64)
	require.ErrorIs(t, err, syscall.ENOMEM)
}

func TestPortsAndGIDs(t *testing.T) {
	f := New(t, "device a ip=169.254.3.4 gids=ll,zero,ll2,v4\ndevice b link=eth mtu=1024 ip=192.168.7.1\ndevice c link=ib\ndevice d gids=ll\n")
	lib := openLibrary(t, f)
	open := func(name string) (verbs.PortAttr, []verbs.GIDEntry) {
		dev, err := lib.Device(name)
		require.NoError(t, err)
		ctx, err := dev.Open()
		require.NoError(t, err)
		defer func() { require.NoError(t, ctx.Close()) }()
		p, err := ctx.Port(1)
		require.NoError(t, err)
		_, err = ctx.Port(2)
		require.ErrorIs(t, err, syscall.EINVAL)
		g, err := ctx.GIDs(1)
		require.NoError(t, err)
		return p, g
	}
	p, g := open("a")
	require.Equal(t, verbs.PortAttr{State: verbs.PortActive, MaxMTU: 5, ActiveMTU: 5, GIDs: 4, MaxMsg: 0x1000000, LID: 1, LinkLayer: verbs.LinkThunderbolt}, p)
	require.Len(t, g, 3, "the empty entry is left out")
	e, err := verbs.FindIPv4GID(g)
	require.NoError(t, err)
	require.Equal(t, 3, e.Index)
	require.Equal(t, "::ffff:169.254.3.4", e.GID.String())

	p, g = open("b")
	require.Equal(t, verbs.LinkEthernet, p.LinkLayer)
	require.Equal(t, 1024, p.ActiveMTU.Bytes())
	require.Len(t, g, 4)
	e, err = verbs.FindGID(g, netip.MustParseAddr("192.168.7.1"))
	require.NoError(t, err)
	require.Equal(t, 3, e.Index)
	require.Equal(t, verbs.GIDRoCEv2, e.Type)
	_, err = verbs.FindGID(g, netip.MustParseAddr("192.168.7.2"))
	require.ErrorIs(t, err, verbs.ErrNoGID)
	require.ErrorContains(t, err, "::ffff:192.168.7.1 (RoCE v2)")

	p, _ = open("c")
	require.Equal(t, verbs.LinkInfiniBand, p.LinkLayer)
	require.EqualValues(t, 3, p.LID)

	_, g = open("d")
	_, err = verbs.FindIPv4GID(g)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "not the bridge")
}

// TestCrossedCables: a port reaches only the peer at the other end of its
// cable; otherwise the result is the errno, or the silence, that the script
// sets.
func TestCrossedCables(t *testing.T) {
	const crossed = "device a0 %[1]s\ndevice a1 %[1]s\ndevice b0 host=1 %[1]s\ndevice b1 host=1 %[1]s\ncable a0 b1\ncable a1 b0\n"
	f := New(t, fmt.Sprintf(crossed, ""))
	lib := openLibrary(t, f)
	a0, b0 := openEnd(t, lib, "a0", verbs.UC, 8), openEnd(t, lib, "b0", verbs.UC, 8)
	b1 := openEnd(t, lib, "b1", verbs.UC, 8)
	require.NoError(t, a0.qp.Init(1))
	require.ErrorIs(t, a0.qp.RTR(routeTo(t, a0, b0)), syscall.Errno(60))
	require.NoError(t, a0.qp.Destroy())
	a0 = openEnd(t, lib, "a0", verbs.UC, 8)
	join(t, a0, b1)
	exchange(t, a0, b1, 2)
	wait(t, b1, 2)

	f = New(t, fmt.Sprintf(crossed, "unreachable=silent norecv=drop"))
	lib = openLibrary(t, f)
	a0, b0 = openEnd(t, lib, "a0", verbs.UC, 8), openEnd(t, lib, "b0", verbs.UC, 8)
	join(t, a0, b0)
	exchange(t, a0, b0, 2)
	require.Equal(t, map[uint64]verbs.Status{200: 0, 201: 0}, statusOf(t, a0, 2))
	none(t, b0)
	require.Equal(t, 2, f.Count("lost"))
}

// TestRoutes: what RTR refuses, and mismatched numbers.
func TestRoutes(t *testing.T) {
	f := New(t, "device a gids=ll,v4\ndevice b host=1\ndevice c host=2\ncable a b\n")
	lib := openLibrary(t, f)
	b, c := openEnd(t, lib, "b", verbs.UC, 8), openEnd(t, lib, "c", verbs.UC, 8)
	for name, change := range map[string]func(*verbs.Route){
		"zero GID":       func(r *verbs.Route) { r.PeerGID = verbs.GID{} },
		"wrong index":    func(r *verbs.Route) { r.SGIDIndex = 0 }, // the link-local one
		"index past end": func(r *verbs.Route) { r.SGIDIndex = 2 },
		"by LID":         func(r *verbs.Route) { r.Global = false },
	} {
		a := openEnd(t, lib, "a", verbs.UC, 8)
		require.NoError(t, a.qp.Init(1))
		r := routeTo(t, a, b)
		change(&r)
		require.ErrorIs(t, a.qp.RTR(r), syscall.EINVAL, name)
		require.NoError(t, a.qp.Destroy())
	}
	a := openEnd(t, lib, "a", verbs.UC, 8)
	require.NoError(t, a.qp.Init(1))
	require.ErrorIs(t, a.qp.RTR(routeTo(t, a, c)), syscall.Errno(60), "no cable")
	require.ErrorIs(t, a.qp.RTR(verbs.Route{SGIDIndex: 256, PathMTU: 3}), distributed.ErrArgument)
	require.ErrorIs(t, a.qp.RTR(verbs.Route{}), distributed.ErrArgument)
	require.NoError(t, a.qp.Destroy())

	// A first packet number other than the announced one: nothing arrives.
	a = openEnd(t, lib, "a", verbs.UC, 8)
	require.NoError(t, a.qp.Init(1))
	require.NoError(t, b.qp.Init(1))
	require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
	require.NoError(t, b.qp.RTR(routeTo(t, b, a)))
	require.NoError(t, a.qp.RTS(8, verbs.DefaultRetries))
	require.NoError(t, b.qp.RTS(7, verbs.DefaultRetries))
	exchange(t, a, b, 1)
	none(t, b)
}

// TestTransitions: transitions out of order, and posts in the wrong state.
func TestTransitions(t *testing.T) {
	_, a, b := apart(t, tbPair, verbs.UC, 8)
	require.ErrorIs(t, a.qp.RTS(7, verbs.Retries{}), syscall.EINVAL)
	require.ErrorIs(t, a.qp.RTR(routeTo(t, a, b)), syscall.EINVAL)
	_, err := a.qp.PostRecv(a.mr.Request(1, 0, 1))
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorIs(t, a.qp.Init(2), syscall.EINVAL, "no such port")
	require.NoError(t, a.qp.Init(1))
	require.ErrorIs(t, a.qp.Init(1), syscall.EINVAL)
	require.ErrorIs(t, a.qp.RTS(7, verbs.Retries{}), syscall.EINVAL)
	_, err = a.qp.PostSend(a.mr.Request(1, 0, 1))
	require.ErrorIs(t, err, syscall.EINVAL)
	require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
	require.ErrorIs(t, a.qp.RTR(routeTo(t, a, b)), syscall.EINVAL)
	_, state, err := a.qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTR, state)
	require.NoError(t, a.qp.RTS(7, verbs.Retries{}))
	_, state, err = a.qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTS, state)
}

// closed: use after close is an error, never a call into freed memory.
func closed(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, distributed.ErrClosed)
	require.ErrorContains(t, err, "was already destroyed")
}

// TestTeardown: Close of a context destroys everything in order and leaves
// nothing behind; each object may also be destroyed by itself, and twice.
func TestTeardown(t *testing.T) {
	f := New(t, tbPair)
	lib, err := verbs.Open(f.Path)
	require.NoError(t, err)
	for range 3 {
		a, b := openEnd(t, lib, "a", verbs.UC, 8), openEnd(t, lib, "b", verbs.UC, 8)
		join(t, a, b)
		exchange(t, a, b, 3)
		require.ErrorContains(t, lib.Close(), "2 devices are still open")
		require.ErrorIs(t, a.pd.Close(), syscall.EBUSY, "a queue pair uses it")
		require.ErrorIs(t, a.cq.Destroy(), syscall.EBUSY)
		require.NoError(t, a.qp.Destroy())
		require.NoError(t, a.qp.Destroy())
		require.NoError(t, a.ctx.Close())
		require.NoError(t, a.ctx.Close())
		require.NoError(t, b.ctx.Close())
		_, err := a.ctx.Query()
		closed(t, err)
		_, err = a.ctx.GIDs(1)
		closed(t, err)
		_, err = a.ctx.AllocPD()
		closed(t, err)
		_, err = a.ctx.CreateCQ(1)
		closed(t, err)
		_, err = a.cq.Poll(make([]verbs.WC, 1))
		closed(t, err)
		_, err = a.qp.PostRecv(verbs.Request{})
		closed(t, err)
		closed(t, a.qp.Init(1))
		_, _, err = a.qp.Query()
		closed(t, err)
		_, err = a.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: a.cq, RecvCQ: a.cq})
		closed(t, err)
		for _, what := range []string{"qps", "mrs", "cqs", "pds", "contexts"} {
			require.Zero(t, f.Count(what), what)
		}
	}
	require.NoError(t, lib.Close())
	require.NoError(t, lib.Close())
}

// TestHang: a call that never returns is abandoned at the time limit, the error
// names it, and the teardown does not touch what the call may still use.
func TestHang(t *testing.T) {
	f, err := Make(t.TempDir(), "device a\nfault on=dealloc_pd do=hang:20000\n")
	require.NoError(t, err)
	lib, err := verbs.Open(f.Path)
	require.NoError(t, err)
	dev, err := lib.Device("a")
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	_, err = ctx.AllocPD()
	require.NoError(t, err)
	lib.Limit = 50 * time.Millisecond
	err = ctx.Close()
	require.ErrorIs(t, err, distributed.ErrTimeout)
	require.ErrorContains(t, err, "dealloc_pd on a: did not return within 50ms")
	require.ErrorContains(t, err, "left behind")
	require.Equal(t, []string{"dealloc_pd on a"}, lib.Lost())
	require.ErrorIs(t, ctx.Close(), distributed.ErrTimeout, "no second attempt")
	require.Equal(t, 1, f.Count("contexts"))
	require.ErrorContains(t, lib.Close(), "still open")
	require.Error(t, f.Close()) // leaked, as on hardware: the thread may still be in it
}

// TestFailedDestroy: a handle that could not be destroyed is kept, and destroying
// it may be tried again.
func TestFailedDestroy(t *testing.T) {
	for _, call := range []string{"destroy_qp", "dereg_mr", "destroy_cq", "dealloc_pd"} {
		f := New(t, "device a\nfault on="+call+" do=errno:16\n")
		ctx, err := bringUp(t, openLibrary(t, f), "a")
		require.NoError(t, err)
		err = ctx.Close()
		require.ErrorIs(t, err, syscall.EBUSY)
		require.ErrorContains(t, err, call+" on a")
		require.Equal(t, 1, f.Count("contexts"), "what others rest on is left alone")
		require.NoError(t, ctx.Close())
		require.Zero(t, f.Count("contexts"))
	}
}

// TestCounts: live objects and sent data are also counted per device, and a
// device registers no more memory than it has.
func TestCounts(t *testing.T) {
	f, a, b := apart(t, "device a max_mem=1088576\ndevice b host=1\ncable a b\n", verbs.UC, 16)
	join(t, a, b)
	done := make(chan error, 2)
	for _, e := range []*end{a, b} {
		go func() { done <- stream(e, 5, 4, 4096) }()
	}
	for range 2 {
		require.NoError(t, <-done)
	}
	for what, want := range map[string]int{"qps:a": 1, "mrs:b": 1, "cqs:a": 1, "contexts:b": 1, "pds:b": 1, "bytes:a": 5 * 4096,
		"bytes:b": 5 * 4096, "bytes": 10 * 4096, "qps:c": -1, "lost:a": -1} {
		require.Equal(t, want, f.Count(what), what)
	}
	slab, err := verbs.NewSlab(verbs.SlabAlign)
	require.NoError(t, err)
	_, err = b.pd.RegMR(slab, verbs.AccessAuto)
	require.NoError(t, err)
	for err = nil; err == nil && f.Count("mrs:a") < 4; {
		_, err = a.pd.RegMR(slab, verbs.AccessAuto)
	}
	require.ErrorIs(t, err, syscall.ENOMEM)
}

// TestMany: several rails in both directions at the same time, from as many
// goroutines; every byte arrives, in order.
func TestMany(t *testing.T) {
	for name, kind := range map[string]string{"plain": "", "late": " late=1 poison=1", "slow": " latency_ns=20000 mbps=2000"} {
		t.Run(name, func(t *testing.T) {
			const rails, count, depth, size = 3, 300, 8, 8192
			script := ""
			for r := range rails {
				script += fmt.Sprintf("device a%d%s\ndevice b%d host=1%s\ncable a%d b%d\n", r, kind, r, kind, r, r)
			}
			f := New(t, script)
			lib := openLibrary(t, f)
			done := make(chan error, 2*rails)
			for r := range rails {
				a, b := openEnd(t, lib, fmt.Sprint("a", r), verbs.UC, 2*depth), openEnd(t, lib, fmt.Sprint("b", r), verbs.UC, 2*depth)
				join(t, a, b)
				for _, e := range []*end{a, b} {
					go func() { done <- stream(e, count, depth, size) }()
				}
			}
			for range 2 * rails {
				require.NoError(t, <-done)
			}
			require.Equal(t, 2*rails*count, f.Count("messages"))
			require.Equal(t, 2*rails*count*size, f.Count("bytes"))
		})
	}
}

// stream sends count messages and receives as many, with depth in flight, and
// checks each.
func stream(e *end, count, depth, size int) error {
	mem := e.mr.Bytes()
	recvAt, sendAt := func(i int) int { return i % depth * size }, func(i int) int { return room/2 + i%depth*size }
	for i := range depth {
		if _, err := e.qp.PostRecv(e.mr.Request(uint64(i), recvAt(i), size)); err != nil {
			return err
		}
	}
	sent, done, got := 0, 0, 0
	deadline := time.Now().Add(60 * time.Second)
	for buf := make([]verbs.WC, 4); done < count || got < count; {
		if sent < count && sent-done < depth {
			at := sendAt(sent)
			for k := range size {
				mem[at+k] = byte(sent*7 + k)
			}
			if _, err := e.qp.PostSend(e.mr.Request(1<<32|uint64(sent), at, size)); err != nil {
				return err
			}
			sent++
		}
		n, err := e.cq.Poll(buf)
		if err != nil {
			return err
		}
		if n == 0 && time.Now().After(deadline) {
			return fmt.Errorf("sent %d, done %d, got %d of %d", sent, done, got, count)
		}
		for _, wc := range buf[:n] {
			switch {
			case wc.Status != verbs.StatusOK:
				return verbs.NewCompletionError(wc)
			case wc.ID>>32 == 1:
				if int(uint32(wc.ID)) != done {
					return fmt.Errorf("send %d completed in place of %d", uint32(wc.ID), done)
				}
				done++
			default:
				if int(wc.ID) != got {
					return fmt.Errorf("receive %d completed in place of %d", wc.ID, got)
				}
				at := recvAt(got)
				for k := range size {
					if mem[at+k] != byte(got*7+k) {
						return fmt.Errorf("message %d: byte %d is %#x", got, k, mem[at+k])
					}
				}
				got++
				if got+depth <= count {
					if _, err := e.qp.PostRecv(e.mr.Request(uint64(got+depth-1), at, size)); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}
