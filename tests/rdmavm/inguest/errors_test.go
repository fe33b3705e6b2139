//go:build linux && cgo

package inguest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
	"ringmaster/tests/rdmavm/job"
)

// quick gives up on a request soon: half a second, one retry. With less, a busy
// guest takes too long to send its RNR answer.
var quick = verbs.Retries{Timeout: 17, Retry: 1, RNR: 1}

// Statuses that the kernel gives, besides those that package verbs names.
const (
	statusLocQPOp verbs.Status = 2
	statusRemOp   verbs.Status = 11
)

// outcome maps the id of each request to the status it completed with.
type outcome map[uint64]verbs.Status

// TestErrors provokes failures and requires the kernel's statuses for all
// requests, both for the cause and for the flushes behind it. On RC the other
// side is notified; UC never tells the sender anything.
//
// Soft-RoCE reports LOC_QP_OP_ERR where the specification has LOC_LEN_ERR and
// LOC_PROT_ERR, and answers REM_OP_ERR where it has REM_INV_REQ_ERR.
func TestErrors(t *testing.T) {
	const (
		first, second     = 1, 2   // receives of b
		own               = 3      // a receive of a
		message, followed = 4, 5   // messages of a
		room, long        = 100, 9 // bytes
	)
	wrongKey := func(r verbs.Request) verbs.Request {
		r.LKey ^= 0x100
		return r
	}
	cases := []struct {
		name string
		post func(t *testing.T, a, b *end)
		// The outcomes on RC and on UC.
		a, b     map[verbs.QPType]outcome
		aStateRC verbs.QPState
	}{
		{
			name: "a message longer than its receive",
			post: func(t *testing.T, a, b *end) {
				require.NoError(t, b.recv(first, 0, long-1))
				require.NoError(t, b.recv(second, 0, room))
				require.NoError(t, a.recv(own, 0, room))
				require.NoError(t, a.send(message, 0, long))
				require.NoError(t, a.send(followed, 0, 1))
			},
			a: map[verbs.QPType]outcome{
				verbs.RC: {message: statusRemOp, own: verbs.StatusFlush, followed: verbs.StatusFlush},
				verbs.UC: {message: verbs.StatusOK, followed: verbs.StatusOK},
			},
			b: map[verbs.QPType]outcome{
				verbs.RC: {first: statusLocQPOp, second: verbs.StatusFlush},
				verbs.UC: {first: statusLocQPOp, second: verbs.StatusFlush},
			},
			aStateRC: verbs.StateErr,
		},
		{
			name: "a peer that never posts a receive",
			post: func(t *testing.T, a, b *end) {
				require.NoError(t, a.recv(own, 0, room))
				require.NoError(t, a.send(message, 0, long))
				require.NoError(t, a.send(followed, 0, 1))
			},
			a: map[verbs.QPType]outcome{
				verbs.RC: {message: verbs.StatusRNRExc, own: verbs.StatusFlush, followed: verbs.StatusFlush},
				verbs.UC: {message: verbs.StatusOK, followed: verbs.StatusOK},
			},
			aStateRC: verbs.StateErr,
		},
		{
			name: "a peer whose queue pair is gone",
			post: func(t *testing.T, a, b *end) {
				require.NoError(t, b.qp.Destroy())
				require.NoError(t, a.recv(own, 0, room))
				require.NoError(t, a.send(message, 0, long))
				require.NoError(t, a.send(followed, 0, 1))
			},
			a: map[verbs.QPType]outcome{
				verbs.RC: {message: verbs.StatusRetryExc, own: verbs.StatusFlush, followed: verbs.StatusFlush},
				verbs.UC: {message: verbs.StatusOK, followed: verbs.StatusOK},
			},
			aStateRC: verbs.StateErr,
		},
		{
			name: "a message from memory that is not registered",
			post: func(t *testing.T, a, b *end) {
				require.NoError(t, b.recv(first, 0, room))
				require.NoError(t, a.recv(own, 0, room))
				_, err := a.qp.PostSend(wrongKey(a.mr.Request(message, 0, long)), a.mr.Request(followed, 0, 1))
				require.NoError(t, err)
			},
			a: map[verbs.QPType]outcome{
				verbs.RC: {message: statusLocQPOp, own: verbs.StatusFlush, followed: verbs.StatusFlush},
				verbs.UC: {message: statusLocQPOp, own: verbs.StatusFlush, followed: verbs.StatusFlush},
			},
			aStateRC: verbs.StateErr,
		},
		{
			name: "a receive into memory that is not registered",
			post: func(t *testing.T, a, b *end) {
				_, err := b.qp.PostRecv(wrongKey(b.mr.Request(first, 0, room)), b.mr.Request(second, 0, room))
				require.NoError(t, err)
				require.NoError(t, a.recv(own, 0, room))
				require.NoError(t, a.send(message, 0, long))
				require.NoError(t, a.send(followed, 0, 1))
			},
			a: map[verbs.QPType]outcome{
				verbs.RC: {message: statusRemOp, own: verbs.StatusFlush, followed: verbs.StatusFlush},
				verbs.UC: {message: verbs.StatusOK, followed: verbs.StatusOK},
			},
			b: map[verbs.QPType]outcome{
				verbs.RC: {first: statusLocQPOp, second: verbs.StatusFlush},
				verbs.UC: {first: statusLocQPOp, second: verbs.StatusFlush},
			},
			aStateRC: verbs.StateErr,
		},
	}
	for _, c := range cases {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%v, %s", kind, c.name), func(t *testing.T) {
				a, b := openPair(t, kind, 1, 1<<14)
				require.NoError(t, join(a, b, quick))
				c.post(t, a, b)
				failed(t, a, c.a[kind])
				failed(t, b, c.b[kind])
				if kind == verbs.RC {
					_, state, err := a.qp.Query()
					require.NoError(t, err)
					require.Equal(t, c.aStateRC, state)
				}
			})
		}
	}
}

// failed waits until the requests have completed, and checks the error of the
// one that verbs.Cause identifies as the cause.
func failed(t *testing.T, e *end, want outcome) {
	t.Helper()
	wcs, err := e.await(t.Context(), len(want))
	require.NoError(t, err)
	got := outcome{}
	for _, wc := range wcs {
		got[wc.ID] = wc.Status
		require.Equal(t, e.qp.Num(), wc.QPN)
		if wc.Status != verbs.StatusOK {
			t.Logf("%s: %v", e.ctx.Device(), verbs.NewCompletionError(wc))
		}
	}
	require.Len(t, got, len(want))
	for id, s := range want {
		require.Equal(t, s.String(), got[id].String(), "request %d on %s", id, e.ctx.Device())
	}
	cause, bad := verbs.Cause(wcs)
	for id, s := range want {
		if s != verbs.StatusOK && s != verbs.StatusFlush {
			require.True(t, bad)
			require.Equal(t, id, cause.ID, "a flush is no cause")
			ce := verbs.NewCompletionError(cause)
			require.NotEqual(t, verbs.StatusFlush, ce.Status)
			require.ErrorContains(t, ce, fmt.Sprintf("completed with %v (%d): %s [qp %#x, wr_id %#x", s, uint32(s), s.Meaning(), e.qp.Num(), id))
		}
	}
	none, err := e.cq.Poll(make([]verbs.WC, 1))
	require.NoError(t, err)
	require.Zero(t, none, "completions of nothing")
}

// TestPostsAfterFailure: a queue pair that has failed accepts sends and flushes
// them. (A receive that is posted then never completes: the library of soft-RoCE
// puts it where the kernel no longer looks. So no code may wait for one.)
func TestPostsAfterFailure(t *testing.T) {
	a, b := openPair(t, verbs.RC, 1, 1<<14)
	require.NoError(t, join(a, b, quick))
	require.NoError(t, a.send(1, 0, 8))
	failed(t, a, outcome{1: verbs.StatusRNRExc})
	require.NoError(t, a.send(2, 0, 8))
	failed(t, a, outcome{2: verbs.StatusFlush})
}

// TestLateReceive: the sender waits for a late receive.
func TestLateReceive(t *testing.T) {
	a, b := openPair(t, verbs.RC, 1, 1<<14)
	require.NoError(t, join(a, b, verbs.DefaultRetries))
	counter := filepath.Join("/sys/class/infiniband", b.ctx.Device(), "ports/1/hw_counters/send_rnr_err")
	before := count(t, counter)
	require.NoError(t, a.send(1, 0, 8))
	until(t, "the receiver has asked for the message again", func() bool { return count(t, counter) > before })
	require.NoError(t, b.recv(2, 0, 8))
	failed(t, b, outcome{2: verbs.StatusOK})
	failed(t, a, outcome{1: verbs.StatusOK})
}

func count(t *testing.T, file string) int {
	text := testenv.ReadFile(t, file)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return n
}

// until polls for a condition of the kernel that has no notification.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := testenv.Within(t, limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Fail(t, "waited for nothing: "+what)
		}
	}
}

// TestLinkDown: the peer's link fails. The port on its side reports it; the
// sender on RC learns it from its request. When the link is back a new queue pair
// works.
func TestLinkDown(t *testing.T) {
	link := func(state string) {
		out, err := exec.Command("/bin/ip", "link", "set", job.Interface(0, 1), state).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	a, b := openPair(t, verbs.RC, 1, 1<<14)
	require.NoError(t, join(a, b, quick))
	address := a.address()
	require.NoError(t, b.recv(1, 0, 8))
	link("down")
	defer link("up")
	until(t, "the port is down", func() bool {
		p, err := b.ctx.Port(1)
		require.NoError(t, err)
		return p.State == verbs.PortDown
	})
	require.NoError(t, a.send(2, 0, 8))
	failed(t, a, outcome{2: verbs.StatusRetryExc})
	link("up")
	until(t, "the port is active", func() bool {
		p, err := b.ctx.Port(1)
		require.NoError(t, err)
		return p.State == verbs.PortActive
	})
	require.NoError(t, a.renew(verbs.RC))
	require.NoError(t, b.renew(verbs.RC))
	require.Equal(t, address.GID, a.address().GID)
	require.NoError(t, join(a, b, verbs.DefaultRetries))
	require.NoError(t, b.recv(3, 0, 8))
	require.NoError(t, a.send(4, 0, 8))
	failed(t, a, outcome{4: verbs.StatusOK})
	got, err := b.await(t.Context(), 1)
	require.NoError(t, err)
	if got[0].Status == verbs.StatusFlush { // of the queue pair that was destroyed
		require.EqualValues(t, 1, got[0].ID)
		got, err = b.await(t.Context(), 1)
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, got[0].ID)
}

// TestKilledProcess: the process at the other end is killed between messages.
func TestKilledProcess(t *testing.T) {
	const n = 4096
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			p, e := startPeer(t, peerConfig{Device: job.Device(0, 1), Type: kind, Size: n, Count: 1000}, job.Device(0, 0), quick)
			require.NoError(t, echo(e, n, 10, true)) // all is well
			p.kill(t)
			require.NoError(t, e.recv(7, 0, n))
			require.NoError(t, e.send(8, n, n))
			if kind == verbs.UC {
				failed(t, e, outcome{8: verbs.StatusOK})
				return
			}
			failed(t, e, outcome{8: verbs.StatusRetryExc, 7: verbs.StatusFlush})
		})
	}
}
