//go:build unix

package accept

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReserve: while the reserve lasts, a connection that arrives when all
// files of the process are in use is still accepted, so that it can be refused.
// The reserve is refilled when files are free.
func TestReserve(t *testing.T) {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	low := was
	low.Cur = 96
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) })

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	defer Hold()()
	require.Len(t, spare.files, reserved)
	for range reserved + 1 { // they wait for Next
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	var held []*os.File
	defer func() {
		for _, f := range held {
			_ = f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, syscall.EMFILE)
			break
		}
		held = append(held, f)
	}
	next := func() net.Conn {
		type result struct {
			c   net.Conn
			err error
		}
		done := make(chan result, 1)
		go func() {
			c, err := Next(ln, nil, nil)
			done <- result{c, err}
		}()
		select {
		case r := <-done:
			require.NoError(t, r.err)
			return r.c
		case <-time.After(20 * time.Second):
			require.Fail(t, "nothing was accepted")
			return nil
		}
	}
	// Connections refused one after the other could continue without end.
	require.NoError(t, next().Close())
	for range reserved - 1 {
		defer next().Close()
	}
	require.LessOrEqual(t, len(spare.files), 1)
	for _, f := range held {
		require.NoError(t, f.Close())
	}
	held = nil
	defer next().Close()
	require.Len(t, spare.files, reserved, "files are free again")
}
