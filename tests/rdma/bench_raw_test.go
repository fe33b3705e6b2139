//go:build cgo && linux

package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
)

// loopDepth is how many messages of each direction of a bare exchange are in flight.
const loopDepth = 8

// rawDevice is a device with registered memory and a completion queue, for benchmarks that
// post and poll without a group.
type rawDevice struct {
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
	mem *verbs.Slab
	gid verbs.GIDEntry
	mtu verbs.MTU
}

// openRaw opens a device of a library and registers a number of bytes.
func openRaw(b *testing.B, lib *verbs.Library, name string, bytes int) rawDevice {
	dev, err := lib.Device(name)
	require.NoError(b, err)
	var d rawDevice
	d.ctx, err = dev.Open()
	require.NoError(b, err)
	d.pd, err = d.ctx.AllocPD()
	require.NoError(b, err)
	d.mem, err = d.ctx.NewSlab(bytes)
	require.NoError(b, err)
	d.mr, err = d.pd.RegMR(d.mem, verbs.AccessAuto)
	require.NoError(b, err)
	d.cq, err = d.ctx.CreateCQ(16 * loopDepth)
	require.NoError(b, err)
	port, err := d.ctx.Port(1)
	require.NoError(b, err)
	d.mtu = port.ActiveMTU
	gids, err := d.ctx.GIDs(1)
	require.NoError(b, err)
	d.gid, err = verbs.FindIPv4GID(gids)
	require.NoError(b, err)
	return d
}

// queuePair makes a queue pair for exchanges of a number of bytes.
func (d *rawDevice) queuePair(b *testing.B, bytes int) *verbs.QP {
	depth := min(4095, 2*loopDepth*max(1, bytes/loopDepth/4096))
	q, err := d.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: d.cq, RecvCQ: d.cq, Caps: verbs.Caps{SendWR: depth, RecvWR: depth}})
	require.NoError(b, err)
	require.NoError(b, q.Init(1))
	return q
}

// route connects a queue pair of the device with one of a peer, which may be the device.
func (d *rawDevice) route(b *testing.B, q, peer *verbs.QP, at *rawDevice) {
	require.NoError(b, q.RTR(verbs.Route{PeerQPN: peer.Num(), PeerPSN: 7, PathMTU: d.mtu, Global: true, SGIDIndex: d.gid.Index, PeerGID: at.gid.GID}))
	require.NoError(b, q.RTS(7, verbs.Retries{}))
}

func (d *rawDevice) close(b *testing.B) {
	require.NoError(b, d.ctx.Close())
	require.NoError(b, d.mem.Free())
}
