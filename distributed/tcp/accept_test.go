package tcp

import (
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fullTable is a listener that finds no file for a connection, and is closed
// after so many attempts.
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

// TestFullTableOfFiles: accepting pauses between two attempts instead of
// spinning, and ends a handshake for each to free its file.
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
