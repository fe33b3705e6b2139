//go:build linux && cgo

package inguest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
	"ringmaster/tests/rdmavm/job"
)

// kinds are the service types in use.
var kinds = []verbs.QPType{verbs.RC, verbs.UC}

// sizes are around the packets of 4096 bytes and the frames into which
// transports cut messages.
var sizes = []int{1, 7, 4095, 4096, 4097, 16 << 10, 64<<10 + 3, 512 << 10}

// TestMessages: every message arrives complete and in order, both ways, between
// two devices and within one.
func TestMessages(t *testing.T) {
	const room = 512 << 10
	for _, kind := range kinds {
		for _, port := range []int{1, 0} {
			t.Run(fmt.Sprintf("%v to %s", kind, job.Device(0, port)), func(t *testing.T) {
				a, b := openPair(t, kind, port, 4*room)
				require.NoError(t, join(a, b, verbs.DefaultRetries))
				rng := rand.NewChaCha8([32]byte{1, byte(kind), byte(port)})
				for i, n := range sizes {
					for turn, ends := range [][2]*end{{a, b}, {b, a}} {
						from, to := ends[0], ends[1]
						id := uint64(10*i + turn)
						// Layout of the slab: outgoing data at 0, incoming at
						// 2*room.
						_, _ = rng.Read(from.mr.Bytes()[:n])
						clear(to.mr.Bytes()[2*room : 3*room])
						require.NoError(t, to.recv(id|1<<32, 2*room, room))
						require.NoError(t, from.send(id, 0, n))
						got, err := to.await(t.Context(), 1)
						require.NoError(t, err)
						require.Equal(t, verbs.WC{ID: id | 1<<32, Opcode: verbs.OpRecv, ByteLen: uint32(n), QPN: to.qp.Num()}, known(got[0]))
						sent, err := from.await(t.Context(), 1)
						require.NoError(t, err)
						require.Equal(t, id, sent[0].ID)
						require.Equal(t, verbs.StatusOK, sent[0].Status)
						require.Equal(t, verbs.OpSend, sent[0].Opcode)
						require.Equal(t, from.qp.Num(), sent[0].QPN)
						require.Equal(t, from.mr.Bytes()[:n], to.mr.Bytes()[2*room:2*room+n])
						require.Zero(t, to.mr.Bytes()[2*room+n], "a byte too many")
					}
				}
			})
		}
	}
}

// known are the fields of a receive's completion that a test can predict.
func known(wc verbs.WC) verbs.WC {
	return verbs.WC{ID: wc.ID, Status: wc.Status, Opcode: wc.Opcode, ByteLen: wc.ByteLen, QPN: wc.QPN}
}

// TestManyMessages: a full queue of posted receives is filled in order, by
// requests that were posted in one chain.
func TestManyMessages(t *testing.T) {
	const n = 1000
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			a, b := openPair(t, kind, 1, depth*n)
			require.NoError(t, join(a, b, verbs.DefaultRetries))
			var in, out []verbs.Request
			for i := range depth {
				in = append(in, b.mr.Request(uint64(i), i*n, n))
				out = append(out, a.mr.Request(uint64(i), i*n, n-i))
				for k := range n {
					a.mr.Bytes()[i*n+k] = byte(i)
				}
			}
			posted, err := b.qp.PostRecv(in...)
			require.NoError(t, err)
			require.Equal(t, depth, posted)
			posted, err = a.qp.PostSend(out...)
			require.NoError(t, err)
			require.Equal(t, depth, posted)
			got, err := b.await(t.Context(), depth)
			require.NoError(t, err)
			sent, err := a.await(t.Context(), depth)
			require.NoError(t, err)
			_, bad := verbs.Cause(append(got, sent...))
			require.False(t, bad)
			for i := range depth {
				require.EqualValues(t, i, got[i].ID)
				require.EqualValues(t, n-i, got[i].ByteLen)
				require.EqualValues(t, i, sent[i].ID)
				require.EqualValues(t, i, b.mr.Bytes()[i*n])
			}
		})
	}
}

// openPair opens the device at port 0 of rail 0 and the one at another port.
func openPair(t *testing.T, kind verbs.QPType, port, bytes int) (a, b *end) {
	t.Helper()
	a, err := openEnd(job.Device(0, 0), kind, bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.close()) })
	b, err = openEnd(job.Device(0, port), kind, bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.close()) })
	return a, b
}

// TestTwoProcesses: the other end is another process.
func TestTwoProcesses(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{8, 4096, 40_000} {
			t.Run(fmt.Sprintf("%v, %d bytes", kind, n), func(t *testing.T) {
				const count = 20
				p, e := startPeer(t, peerConfig{Device: job.Device(0, 1), Type: kind, Size: n, Count: count}, job.Device(0, 0), verbs.DefaultRetries)
				_, _ = rand.NewChaCha8([32]byte{2, byte(kind)}).Read(e.mr.Bytes()[n : 2*n])
				require.NoError(t, echo(e, n, count, true))
				require.Equal(t, e.mr.Bytes()[n:2*n], e.mr.Bytes()[:n])
				p.end(t)
			})
		}
	}
}
