package cluster

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/control"
)

// connected returns the leader's end of a connection and the follower's.
func connected(t *testing.T, o control.Options) (leader, follower *control.Conn) {
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() {
		var err error
		follower, err = control.Client(t.Context(), far, o)
		done <- err
	}()
	leader, err := control.Server(t.Context(), near, o)
	require.NoError(t, err)
	require.NoError(t, <-done)
	return leader, follower
}

// TestAStalledFollowerBlocksNoOther: the leader loses no time although four
// followers do not read, and a fifth gets all messages.
func TestAStalledFollowerBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Leader{clock: newClock(time.Hour), conns: map[int]*outbox{}, sm: newStateMachine(params{self: testHello(0, 6)})}
		var reader *control.Conn
		for rank := 1; rank < 6; rank++ {
			near, far := connected(t, control.Options{WriteTimeout: time.Second})
			l.conns[rank] = newOutbox(near)
			l.wg.Go(l.conns[rank].run)
			l.sm.members[rank] = &member{conn: rank}
			reader = far
			defer far.Close()
		}
		began := time.Now()
		for range 4 {
			l.event(func() { l.sm.toAll(message{Kind: kindHeartbeat}) })
		}
		require.Zero(t, time.Since(began), "the leader does not wait")
		for range 4 {
			f, err := reader.Receive()
			require.NoError(t, err)
			require.Equal(t, kindHeartbeat, kind(f.Type))
		}
		require.Zero(t, time.Since(began))
		// After hanging up, a connection still delivers what was sent before.
		l.event(func() {
			l.sm.conns[5] = &conn{rank: -1}
			l.sm.reject(5, "why", false)
		})
		f, err := reader.Receive()
		require.NoError(t, err)
		require.Equal(t, kindReject, kind(f.Type))
		_, err = reader.Receive()
		require.Error(t, err)
		l.wg.Wait() // the writes to the others have run into their deadline
		require.Equal(t, time.Second, time.Since(began))
	})
}

// TestAnOutboxIsBounded: a follower that is too far behind is dropped.
func TestAnOutboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{0, control.MaxFrame} {
			near, far := connected(t, control.Options{WriteTimeout: time.Hour})
			o := newOutbox(near)
			go o.run()
			for range 2 * mostFrames {
				o.send(control.Frame{Payload: make([]byte, size)})
				o.mu.Lock()
				require.LessOrEqual(t, o.bytes, mostQueued)
				require.LessOrEqual(t, len(o.queue), mostFrames)
				o.mu.Unlock()
			}
			synctest.Wait()
			require.True(t, o.closed)
			require.Empty(t, o.queue)
			_, err := near.Receive()
			require.ErrorIs(t, err, net.ErrClosed)
			require.NoError(t, far.Close())
		}
	})
}
