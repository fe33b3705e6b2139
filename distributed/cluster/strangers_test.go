package cluster

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/accept"
	"ringmaster/distributed/control"
)

// strangers opens silent connections to the leader.
func (r *rig) strangers(n int) {
	for range n {
		c, err := net.Dial("tcp", r.addr)
		require.NoError(r.t, err)
		r.t.Cleanup(func() { _ = c.Close() })
	}
}

// TestStrangersDoNotKeepTheGroupFromForming: a stranger that opens silent
// connections keeps only a bounded number of them, and takes no rank's place.
func TestStrangersDoNotKeepTheGroupFromForming(t *testing.T) {
	r := newRig(t, 3, []byte("a key of the cluster"))
	r.strangers(400)
	r.follow(1, nil)
	r.follow(2, nil)
	require.NoError(t, r.leader.Wait(soon(t)))
	require.LessOrEqual(t, r.leader.strangers.Len(), accept.DefaultLimit())
	require.NoError(t, r.do(r.running(0), "all the same"))
	// Connections of ranks are not closed to make room.
	e := r.running(0)
	r.strangers(400)
	require.NoError(t, r.do(e, "still the same epoch"))
	require.NoError(t, context.Cause(e.Done))
}

// TestHelloIsDue: an authenticated connection without a hello counts as a
// stranger's, too.
func TestHelloIsDue(t *testing.T) {
	r := newRig(t, 2, nil)
	for range 2 * accept.DefaultLimit() {
		c, err := control.Dial(t.Context(), r.addr, control.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	require.LessOrEqual(t, r.leader.strangers.Len(), accept.DefaultLimit())
	r.follow(1, nil)
	require.NoError(t, r.do(r.running(0), "work"))
}

// TestLastWordsReachABusyRank: the leader ends while a rank sends without reading,
// because its answers and heartbeats cross the shutdown. The rank still reads the
// shutdown and does not look for the ended leader.
func TestLastWordsReachABusyRank(t *testing.T) {
	r := newRig(t, 2, nil)
	c := r.raw(1)
	busy := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			err = c.Send(control.Frame{Type: uint16(kindHeartbeat)})
		}
		busy <- err
	}()
	require.NoError(t, r.leader.Close(soon(t), "the end"))
	require.Error(t, <-busy, "the leader has gone")
	for {
		f, err := c.Receive()
		require.NoError(t, err, "the connection ends before the shutdown")
		if kindOf(t, f) == kindShutdown {
			return
		}
	}
}

func kindOf(t *testing.T, f control.Frame) kind {
	_, err := decode(kind(f.Type), f.Payload)
	require.NoError(t, err)
	return kind(f.Type)
}
