package cluster

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pointer is an address that leads to one of several leaders, as a name or a floating
// address does. Existing connections keep their leader.
type pointer struct {
	net.Listener
	mu sync.Mutex
	to string
}

func point(t *testing.T, to string) *pointer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &pointer{Listener: ln, to: to}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			to := p.to
			p.mu.Unlock()
			go func() {
				defer c.Close()
				d, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer d.Close()
				go func() {
					io.Copy(d, c)
					d.Close()
				}()
				io.Copy(c, d)
			}()
		}
	}()
	return p
}

// TestTwoLeaders: a second leader takes over the address of one that still runs. The
// ranks that lose the first leader join the second, which serves them. The first has no
// ranks, and none of its messages reaches a rank of the second's group. A rank is never
// in two groups.
func TestTwoLeaders(t *testing.T) {
	first := newRigThat(t, Await, 2, nil)
	front := point(t, first.addr)
	second := newRigOn(t, first.net, Await, 2, nil)
	at := front.Addr().String()
	f := first.follow(1, func(c *Config, _ *program) { c.Coordinator = at })
	old := first.running(0)
	require.NoError(t, first.do(old, "a"))

	front.mu.Lock()
	front.to = second.addr
	front.mu.Unlock()
	// The rank still follows the first leader, because it has not lost it. The second
	// waits for it.
	require.NoError(t, first.do(old, "b"))
	_, err := second.leader.Epoch()
	require.ErrorContains(t, err, "the group is incomplete")
	require.Eventually(t, func() bool {
		first.leader.mu.Lock()
		defer first.leader.mu.Unlock()
		x := first.leader.sm.members[1]
		if x == nil {
			return false
		}
		first.leader.conns[x.conn].conn.Close() // the link to the first leader is cut
		return true
	}, limit, 2*time.Millisecond)
	e := second.running(0)
	require.NoError(t, second.do(e, "c"))
	_, err = first.leader.Epoch()
	require.Error(t, err)
	_, err = first.leader.Begin(old.Number, []byte("of the past"))
	require.Error(t, err)
	require.NoError(t, second.do(e, "d"), "the first leader has not disturbed the group of the second")
	f.program.mu.Lock()
	require.Equal(t, []string{"a", "b", "c", "d"}, f.did)
	f.program.mu.Unlock()
	f.stop(errors.New("done"))
	require.NoError(t, first.ended(f))
}
