package accept

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// listener first returns its errors, then connections.
type listener struct {
	net.Listener
	errs  []error
	calls int
}

func (l *listener) Accept() (net.Conn, error) {
	l.calls++
	if len(l.errs) == 0 {
		return &conn{}, nil
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// conn counts how often it was closed.
type conn struct {
	net.Conn
	from   string
	closed int
}

func (c *conn) Close() error { c.closed++; return nil }
func (c *conn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}

func failed(e syscall.Errno) error {
	return &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", e)}
}

func TestNextOutlivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		for range 10 {
			l.errs = append(l.errs, failed(syscall.EMFILE))
		}
		l.errs = append(l.errs, failed(syscall.EPROTO))
		rooms, notes := 0, 0
		began := time.Now()
		c, err := Next(l, func() { rooms++ }, func(err error) {
			require.ErrorIs(t, err, syscall.EMFILE)
			notes++
		})
		require.NoError(t, err)
		require.NotNil(t, c)
		require.Equal(t, 12, l.calls)
		require.Equal(t, 10, rooms, "only a lack of files is a reason to close connections")
		require.Equal(t, 1, notes)
		require.Equal(t, (5+10+20+40+80+6*100)*time.Millisecond, time.Since(began))
	})
}

func TestNextEndsWithTheListener(t *testing.T) {
	l := &listener{errs: []error{failed(syscall.ECONNABORTED), &net.OpError{Op: "accept", Err: net.ErrClosed}}}
	_, err := Next(l, nil, nil)
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, 2, l.calls)
}

func TestPendingEndsThoseOfTheBusiestAddress(t *testing.T) {
	p := NewPending(4)
	add := func(from string) *conn {
		c := &conn{from: from}
		p.Add(c)
		require.LessOrEqual(t, p.Len(), 4)
		return c
	}
	first := add("10.0.0.9:1")
	var flood []*conn
	for range 200 {
		flood = append(flood, add("[::ffff:10.0.0.1]:2"))
	}
	second := add("10.0.0.8:1")
	require.Zero(t, first.closed, "it is the oldest, but its address has only one")
	require.Zero(t, second.closed)
	for i, c := range flood {
		require.Equal(t, i < 198, c.closed == 1, "connection %d", i)
	}
	require.True(t, p.Remove(first))
	require.False(t, p.Remove(first))
	require.False(t, p.Remove(flood[0]))
	require.Zero(t, first.closed)
	require.Equal(t, 3, p.Len())

	p.Evict()
	require.Equal(t, 1, flood[198].closed)
	p.Evict()
	require.Equal(t, 1, second.closed+flood[199].closed)
	p.Evict()
	p.Evict() // of nothing
	require.Zero(t, p.Len())
}

func TestPendingClose(t *testing.T) {
	p := NewPending(4)
	before, after := &conn{from: "10.0.0.9:1"}, &conn{from: "10.0.0.9:2"}
	p.Add(before)
	p.Close()
	p.Add(after)
	require.Equal(t, []int{1, 1}, []int{before.closed, after.closed})
	require.False(t, p.Remove(before))
	require.Zero(t, p.Len())
}

func TestPendingCountsIPv6Networks(t *testing.T) {
	p := NewPending(3)
	honest := &conn{from: "[2001:db8:0:2::1]:1"}
	p.Add(honest)
	for _, from := range []string{"[2001:db8:0:1::1]:1", "[2001:db8:0:1::2]:1", "[2001:db8:0:1:ff::3]:1", "[2001:db8:0:1::4]:1"} {
		p.Add(&conn{from: from})
	}
	require.Zero(t, honest.closed)
}

func TestDefaultLimitLeavesFiles(t *testing.T) {
	require.LessOrEqual(t, DefaultLimit(), mostPending)
	require.LessOrEqual(t, DefaultLimit(), max(1, FileLimit()/8))
	require.Positive(t, DefaultLimit())
}
