//go:build cgo && (linux || darwin)

package fakeverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
)

// end is one end of a link: a device with a domain, a slab and one queue pair.
type end struct {
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
}

const room = 1 << 20 // bytes of each end's slab

// openLibrary opens the library of a fabric.
func openLibrary(t testing.TB, f *Fabric) *verbs.Library {
	lib, err := verbs.Open(f.Path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lib.Close()) })
	return lib
}

// openEnd makes an end up to a queue pair in RESET.
func openEnd(t testing.TB, lib *verbs.Library, name string, kind verbs.QPType, depth int) *end {
	dev, err := lib.Device(name)
	require.NoError(t, err)
	e := &end{}
	e.ctx, err = dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.ctx.Close()) })
	e.pd, err = e.ctx.AllocPD()
	require.NoError(t, err)
	slab, err := verbs.NewSlab(room)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.ctx.Close()); require.NoError(t, slab.Free()) })
	e.mr, err = e.pd.RegMR(slab, verbs.AccessAuto)
	require.NoError(t, err)
	e.cq, err = e.ctx.CreateCQ(4*depth + 1)
	require.NoError(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: kind, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.Caps{SendWR: depth, RecvWR: depth}})
	require.NoError(t, err)
	return e
}

// routeTo returns the route from e to p.
func routeTo(t testing.TB, e, p *end) verbs.Route {
	mine, err := e.ctx.Port(1)
	require.NoError(t, err)
	theirs, err := p.ctx.Port(1)
	require.NoError(t, err)
	r := verbs.Route{PeerQPN: p.qp.Num(), PeerPSN: 7, PathMTU: min(mine.ActiveMTU, theirs.ActiveMTU), PeerLID: theirs.LID}
	if mine.LinkLayer == verbs.LinkInfiniBand {
		return r
	}
	mg, err := e.ctx.GIDs(1)
	require.NoError(t, err)
	pg, err := p.ctx.GIDs(1)
	require.NoError(t, err)
	m, err := verbs.FindIPv4GID(mg)
	require.NoError(t, err)
	o, err := verbs.FindIPv4GID(pg)
	require.NoError(t, err)
	r.Global, r.SGIDIndex, r.PeerGID = true, m.Index, o.GID
	return r
}

// join brings both ends to RTS.
func join(t testing.TB, a, b *end) {
	require.NoError(t, a.qp.Init(1))
	require.NoError(t, b.qp.Init(1))
	require.NoError(t, a.qp.RTR(routeTo(t, a, b)))
	require.NoError(t, b.qp.RTR(routeTo(t, b, a)))
	require.NoError(t, a.qp.RTS(7, verbs.DefaultRetries))
	require.NoError(t, b.qp.RTS(7, verbs.DefaultRetries))
}

// apart makes two devices with one cable, each with a queue pair in RESET.
func apart(t testing.TB, script string, kind verbs.QPType, depth int) (f *Fabric, a, b *end) {
	f = New(t, script)
	lib := openLibrary(t, f)
	return f, openEnd(t, lib, "a", kind, depth), openEnd(t, lib, "b", kind, depth)
}

// link makes two devices with one cable and joins them.
func link(t testing.TB, script string, kind verbs.QPType, depth int) (f *Fabric, a, b *end) {
	f, a, b = apart(t, script, kind, depth)
	join(t, a, b)
	return f, a, b
}

// wait polls an end until it has n completions or the deadline has passed.
func wait(t testing.TB, e *end, n int) []verbs.WC {
	t.Helper()
	var all []verbs.WC
	deadline := time.Now().Add(30 * time.Second)
	for len(all) < n {
		buf := make([]verbs.WC, 16)
		k, err := e.cq.Poll(buf)
		require.NoError(t, err)
		all = append(all, buf[:k]...)
		if k == 0 && time.Now().After(deadline) {
			require.FailNow(t, "completions missing", "%d of %d: %+v", len(all), n, all)
		}
	}
	return all
}

// none checks that polling many times returns nothing.
func none(t testing.TB, e *end) {
	t.Helper()
	for range 1000 {
		n, err := e.cq.Poll(make([]verbs.WC, 1))
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

func (e *end) recv(t testing.TB, id uint64, off, n int) {
	t.Helper()
	_, err := e.qp.PostRecv(e.mr.Request(id, off, n))
	require.NoError(t, err)
}

func (e *end) send(t testing.TB, id uint64, off, n int) {
	t.Helper()
	_, err := e.qp.PostSend(e.mr.Request(id, off, n))
	require.NoError(t, err)
}

// Scripts of a pair of devices of each kind.
const (
	tbPair  = "device a host=0\ndevice b host=1\ncable a b\n"
	ibPair  = "device a host=0 link=ib\ndevice b host=1 link=ib\nswitch a b\n"
	ethPair = "device a host=0 link=eth\ndevice b host=1 link=eth\nswitch a b\n"
)

func TestPingPong(t *testing.T) {
	for _, c := range []struct {
		name, script string
		kind         verbs.QPType
	}{
		{"thunderbolt UC", tbPair, verbs.UC},
		{"infiniband RC", ibPair, verbs.RC},
		{"infiniband UC", ibPair, verbs.UC},
		{"roce RC", ethPair, verbs.RC},
		{"thunderbolt UC late", "device a host=0 late=1\ndevice b host=1 late=1\ncable a b\n", verbs.UC},
		{"thunderbolt UC slow", "device a host=0\ndevice b host=1\ncable a b latency_ns=3000 mbps=4000\n", verbs.UC},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, a, b := link(t, c.script, c.kind, 32)
			for i := range 200 {
				n := []int{4096, 1, 16384, 0, 65536, 8191}[i%6]
				for k := range n {
					a.mr.Bytes()[k] = byte(i + 3*k)
				}
				b.recv(t, uint64(i), 0, n)
				a.recv(t, uint64(1000+i), room/2, n)
				a.send(t, uint64(2000+i), 0, n)
				for _, wc := range wait(t, b, 1) {
					require.Equal(t, verbs.WC{ID: uint64(i), Opcode: verbs.OpRecv, ByteLen: uint32(n), QPN: b.qp.Num()}, wc)
				}
				b.send(t, uint64(3000+i), 0, n)
				require.Equal(t, uint64(3000+i), wait(t, b, 1)[0].ID)
				ids := map[uint64]bool{}
				for _, wc := range wait(t, a, 2) {
					require.Equal(t, verbs.StatusOK, wc.Status)
					ids[wc.ID] = true
				}
				require.Equal(t, map[uint64]bool{uint64(1000 + i): true, uint64(2000 + i): true}, ids)
				require.Equal(t, a.mr.Bytes()[:n], a.mr.Bytes()[room/2:room/2+n])
			}
			require.Equal(t, 400, f.Count("messages"))
			require.Zero(t, f.Count("lost"))
		})
	}
}
