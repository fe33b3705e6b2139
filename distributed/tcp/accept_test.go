package tcp

import (
	"net"
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
		tr.shaking = []net.Conn{near}
		began := time.Now()
		tr.running.Add(1)
		tr.accept(&fullTable{attempts: 1000})
		require.Greater(t, time.Since(began), 90*time.Second)
		require.Empty(t, tr.shaking)
		_, err := far.Read(make([]byte, 1))
		require.Error(t, err, "the handshake was ended")
	})
}
