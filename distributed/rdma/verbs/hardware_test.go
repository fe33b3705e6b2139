//go:build cgo && linux

package verbs

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHardware runs on the devices of this machine, if it has any: messages
// between two queue pairs of one device, both services, and the real statuses
// of a message that does not fit and of one without a receiver. Without
// hardware it runs in a guest with the kernel's soft-RoCE.
func TestHardware(t *testing.T) {
	lib, err := Open("libibverbs.so.1")
	if err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	defer func() { require.NoError(t, lib.Close()) }()
	devices, err := lib.Devices()
	if err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	for _, dev := range devices {
		for _, kind := range []QPType{RC, UC} {
			t.Run(dev.Name+" "+kind.String(), func(t *testing.T) { hardware(t, dev, kind) })
		}
	}
}

func hardware(t *testing.T, dev Device, kind QPType) {
	const depth, size = 8, 65536
	ctx, err := dev.Open()
	require.NoError(t, err)
	slab, err := NewSlab(2 * depth * size)
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()); require.NoError(t, slab.Free()) }()
	attr, err := ctx.Query()
	require.NoError(t, err)
	port, err := ctx.Port(1)
	require.NoError(t, err)
	require.Equal(t, PortActive, port.State)
	gids, err := ctx.GIDs(1)
	require.NoError(t, err)
	t.Logf("%+v %+v %+v", attr, port, gids)
	require.Positive(t, attr.MaxQP)
	require.Positive(t, attr.MaxMR)
	gid, err := FindIPv4GID(gids)
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.RegMR(slab, AccessAuto)
	require.NoError(t, err)

	// pair makes two joined queue pairs, or one without a peer.
	var cqs [2]*CQ
	for i := range cqs {
		cqs[i], err = ctx.CreateCQ(4 * depth)
		require.NoError(t, err)
	}
	pair := func(alone bool) (qps [2]*QP) {
		for i := range qps {
			qps[i], err = pd.CreateQP(QPConfig{Type: kind, SendCQ: cqs[i], RecvCQ: cqs[i], Caps: Caps{SendWR: depth, RecvWR: depth}})
			require.NoError(t, err)
			require.GreaterOrEqual(t, qps[i].Granted().SendWR, depth)
			require.NoError(t, qps[i].Init(1))
		}
		for i, q := range qps {
			peer := qps[1-i].Num()
			if alone && i == 0 {
				peer = 0xfffff
			}
			require.NoError(t, q.RTR(Route{PeerQPN: peer, PeerPSN: 7, PathMTU: port.ActiveMTU, Global: true, PeerGID: gid.GID, SGIDIndex: gid.Index}))
			require.NoError(t, q.RTS(7, Retries{Timeout: 10, Retry: 1, RNR: 7}))
			_, state, err := q.Query()
			require.NoError(t, err)
			require.Equal(t, StateRTS, state)
		}
		return qps
	}
	take := func(c *CQ, n int) (all []WC) {
		for end := time.Now().Add(20 * time.Second); len(all) < n && time.Now().Before(end); {
			buf := make([]WC, n-len(all))
			k, err := c.Poll(buf)
			require.NoError(t, err)
			all = append(all, buf[:k]...)
		}
		require.Len(t, all, n)
		return all
	}

	qps := pair(false)
	for i := range depth {
		n, err := qps[1].PostRecv(mr.Request(uint64(i), (depth+i)*size, size))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		copy(mr.Bytes()[i*size:(i+1)*size], bytes.Repeat([]byte{byte(i + 1)}, size))
	}
	for i := range depth {
		_, err := qps[0].PostSend(mr.Request(uint64(100+i), i*size, size))
		require.NoError(t, err)
	}
	for i, wc := range take(cqs[1], depth) {
		require.Equal(t, StatusOK, wc.Status)
		require.EqualValues(t, i, wc.ID)
		require.Equal(t, OpRecv, wc.Opcode)
		require.EqualValues(t, size, wc.ByteLen)
		require.Equal(t, qps[1].Num(), wc.QPN)
	}
	for i, wc := range take(cqs[0], depth) {
		require.Equal(t, StatusOK, wc.Status)
		require.EqualValues(t, 100+i, wc.ID)
		require.Equal(t, OpSend, wc.Opcode)
	}
	require.Equal(t, mr.Bytes()[:depth*size], mr.Bytes()[depth*size:])

	// More than the queue holds is refused, and what was posted is counted.
	var many []Request
	for i := range 4 * depth * 16 {
		many = append(many, mr.Request(uint64(i), 0, 64))
	}
	n, err := qps[0].PostRecv(many...)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.GreaterOrEqual(t, n, qps[0].Granted().RecvWR)
	require.Less(t, n, len(many))

	// A message longer than its receive.
	_, err = qps[1].PostRecv(mr.Request(1, 0, 64))
	require.NoError(t, err)
	_, err = qps[0].PostSend(mr.Request(2, 0, 4096))
	require.NoError(t, err)
	sent := take(cqs[0], 1)[0]
	if kind == RC {
		// soft-RoCE answers 11 where the specification has 9.
		require.Contains(t, []Status{StatusRemInv, 11}, sent.Status, "%v", NewCompletionError(sent))
		require.NotEqual(t, StatusOK, take(cqs[1], 1)[0].Status)
	} else {
		require.Equal(t, StatusOK, sent.Status)
	}
	for _, q := range qps {
		require.NoError(t, q.Destroy())
	}
	for _, cq := range cqs { // what the queue pairs left behind
		for n := 1; n > 0; {
			n, err = cq.Poll(make([]WC, depth))
			require.NoError(t, err)
		}
	}

	// No peer answers: RC reports that, UC cannot.
	qps = pair(true)
	_, err = qps[0].PostSend(mr.Request(1, 0, 64), mr.Request(2, 0, 64))
	require.NoError(t, err)
	got := take(cqs[0], 2)
	cause, failed := Cause(got)
	require.Equal(t, kind == RC, failed)
	if failed {
		require.Equal(t, StatusRetryExc, cause.Status)
		require.Equal(t, StatusFlush, got[1].Status)
	}
}
