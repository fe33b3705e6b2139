//go:build cgo && (linux || darwin)

package fakeverbs

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
)

// TestOneFrame: on macOS 26.2 a message is one frame; the receive of a longer one
// fails.
func TestOneFrame(t *testing.T) {
	const pair = "device a profile=26.2\ndevice b host=1 profile=26.2\ncable a b\n"
	_, a, b := link(t, pair, verbs.UC, 8)
	b.recv(t, 1, 0, 4096)
	a.send(t, 2, 0, 4096)
	require.Equal(t, verbs.WC{ID: 1, Opcode: verbs.OpRecv, ByteLen: 4096, QPN: b.qp.Num()}, wait(t, b, 1)[0])
	require.Equal(t, verbs.StatusOK, wait(t, a, 1)[0].Status)
	b.recv(t, 3, 0, 8192)
	a.send(t, 4, 0, 4097)
	require.Equal(t, map[uint64]verbs.Status{3: verbs.StatusLocLen}, statusOf(t, b, 1))
	_, state, err := b.qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateErr, state)

	_, a, b = link(t, pair, verbs.UC, 8)
	b.recv(t, 1, 0, 8192) // too long for any message
	a.send(t, 2, 0, 4096)
	require.Equal(t, map[uint64]verbs.Status{1: verbs.StatusLocLen}, statusOf(t, b, 1))
}

// TestPackets: on macOS 27.0 each packet of 4 KiB fills the next receive. All but
// the last complete with LOC_LEN_ERR and their length, and the queue pair stays usable.
func TestPackets(t *testing.T) {
	const pair = "device a profile=27.0 gids=ll,v4\ndevice b host=1 profile=27.0 gids=ll,v4\ncable a b\n"
	_, a, b := link(t, pair, verbs.UC, 8)
	for i := range 10_000 {
		a.mr.Bytes()[i] = byte(i * 7)
	}
	for i := range 2 {
		b.recv(t, uint64(i), i*8192, 4096)
	}
	a.send(t, 9, 0, 10_000) // waits for its third receive
	require.Equal(t, []verbs.WC{
		{ID: 0, Status: verbs.StatusLocLen, ByteLen: 4096, QPN: b.qp.Num(), Opcode: 0x55},
		{ID: 1, Status: verbs.StatusLocLen, ByteLen: 4096, QPN: b.qp.Num(), Opcode: 0x55},
	}, wait(t, b, 2))
	none(t, a)
	b.recv(t, 2, 16384, 4096)
	require.Equal(t, verbs.WC{ID: 2, ByteLen: 10_000 - 8192, QPN: b.qp.Num(), Opcode: verbs.OpRecv}, wait(t, b, 1)[0])
	require.Equal(t, map[uint64]verbs.Status{9: 0}, statusOf(t, a, 1))
	for i, n := range []int{4096, 4096, 10_000 - 8192} {
		require.True(t, bytes.Equal(a.mr.Bytes()[i*4096:i*4096+n], b.mr.Bytes()[i*8192:i*8192+n]), "packet %d", i)
	}
	b.recv(t, 3, 0, 4096) // the queue pair still works
	a.send(t, 10, 0, 100)
	require.EqualValues(t, 100, wait(t, b, 1)[0].ByteLen)
	wait(t, a, 1)

	b.recv(t, 4, 0, 8192) // longer than a packet
	a.send(t, 11, 0, 64)
	require.Equal(t, map[uint64]verbs.Status{4: verbs.StatusLocLen}, statusOf(t, b, 1))
}

// TestEmptyIsLost: on macOS 27.0 a message without bytes is lost and never
// completes; those behind it arrive.
func TestEmptyIsLost(t *testing.T) {
	f, a, b := link(t, "device a profile=27.0 gids=ll,v4\ndevice b host=1 profile=27.0 gids=ll,v4\ncable a b\n", verbs.UC, 8)
	b.recv(t, 1, 0, 4096)
	a.send(t, 2, 0, 0)
	a.send(t, 3, 0, 8)
	require.EqualValues(t, 8, wait(t, b, 1)[0].ByteLen)
	require.Equal(t, map[uint64]verbs.Status{3: 0}, statusOf(t, a, 1))
	none(t, a)
	require.Equal(t, 1, f.Count("empty"))
	require.Equal(t, 1, f.Count("lost"))

	f, a, b = link(t, tbPair, verbs.UC, 8)
	b.recv(t, 1, 0, 4096)
	a.send(t, 2, 0, 0)
	require.EqualValues(t, 0, wait(t, b, 1)[0].ByteLen)
	require.Equal(t, []int{1, 0}, []int{f.Count("empty"), f.Count("lost")})
}

// TestStatedLength: a completion may be made to state another length, of long
// messages only.
func TestStatedLength(t *testing.T) {
	_, a, b := link(t, tbPair+"fault device=b on=recv do=length:77 above=4096 count=all\n", verbs.UC, 8)
	b.recv(t, 1, 0, 4096)
	b.recv(t, 2, 4096, 8192)
	a.send(t, 3, 0, 4096)
	a.send(t, 4, 0, 8192)
	got := wait(t, b, 2)
	require.Equal(t, []uint32{4096, 77}, []uint32{got[0].ByteLen, got[1].ByteLen})
	require.ErrorContains(t, tryScript(t, "device a\nfault on=poll do=negative above=1\n"), "above=BYTES is of messages")
}
