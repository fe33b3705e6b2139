package tcp

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fullTable is a listener whose process has no file descriptor left for a
// connection; it closes itself after a number of attempts.
type fullTable struct {
	net.Listener
	attempts int
}

func (l *fullTable) Accept() (net.Conn, error) {
	if l.attempts == 0 {
		return nil, net.ErrClosed
	}
	l.attempts--
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
}

// TestFullTableOfFiles: with no file descriptor left, the accept loop pauses
// between attempts instead of spinning, and ends one handshake per attempt to
// free its descriptor.
func TestFullTableOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(Options{}).(*Transport)
		near, far := net.Pipe()
		tr.strangers.Add(near)
		began := time.Now()
		tr.accept(&fullTable{attempts: 1000})
		require.Greater(t, time.Since(began), 90*time.Second)
		require.Zero(t, tr.strangers.Len())
		_, err := far.Read(make([]byte, 1))
		require.Error(t, err, "the handshake was ended")
	})
}

// crowd is a listener with connections from some addresses; it closes itself
// after the last of them.
type crowd struct {
	net.Listener
	conns []net.Conn
}

func (l *crowd) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, net.ErrClosed
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}

// from is a connection from an address.
type from struct {
	net.Conn
	addr string
}

func (c from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.addr)) }

// TestFloodFromOneAddress: a client that opens many connections ends its own
// handshakes and not that of a rank at another address, even if that rank is
// slow.
func TestFloodFromOneAddress(t *testing.T) {
	tr := New(Options{MaxHandshakes: 4, HandshakeTimeout: time.Hour}).(*Transport)
	ln := &crowd{}
	open := func(addr string) net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		ln.conns = append(ln.conns, from{near, addr})
		return ln.conns[len(ln.conns)-1]
	}
	rank := open("10.0.0.9:1")
	for range 40 {
		open("10.0.0.1:1")
	}
	tr.listener = ln
	tr.accept(ln)
	require.True(t, tr.strangers.Remove(rank), "the handshake of the rank is still under way")
	require.NoError(t, rank.Close())
	require.Equal(t, 3, tr.strangers.Len())
	tr.listener = nil // it has closed itself
	require.NoError(t, tr.Close())
}
