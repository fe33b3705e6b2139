package control

import (
	"errors"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestSocketOptions reads both ends' options back from the kernel.
func TestSocketOptions(t *testing.T) {
	client, server := tcpPair(t, clientOptions(testKey))
	for _, c := range []*Conn{client, server} {
		raw, err := c.nc.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		for _, o := range []struct{ level, name, want int }{
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 4000},
		} {
			var got int
			var asked error
			require.NoError(t, raw.Control(func(fd uintptr) { got, asked = unix.GetsockoptInt(int(fd), o.level, o.name) }))
			require.NoError(t, asked)
			require.Equal(t, o.want, got, "option %d", o.name)
		}
	}
}

// TestHalfOpen cuts the link between two ends, so that neither receives
// anything: the kernel's probes end a Receive on an idle connection, and its
// timeout ends one with an unacknowledged frame.
func TestHalfOpen(t *testing.T) {
	type outcome struct {
		skip string
		errs []error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { done <- o }() // also when a requirement ends the goroutine
		// The thread gets its own network namespace and ends with the
		// goroutine, because that never unlocks it. Its sockets and child
		// processes are in the namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			o.skip = "no network namespace: " + err.Error()
			return
		}
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			o.skip = "ip: " + err.Error() + ": " + string(out)
			return
		}
		idle, _ := tcpPair(t, clientOptions(testKey))
		busy, _ := tcpPair(t, clientOptions(testKey))
		out, err := exec.Command("ip", "link", "set", "lo", "down").CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, busy.Send(Frame{Type: 1}), "the kernel takes it")
		received := make(chan error, 1)
		go func() {
			_, err := busy.Receive()
			received <- err
		}()
		_, err = idle.Receive()
		o.errs = []error{err, <-received}
	}()
	o := <-done
	if o.skip != "" {
		t.Skip("NOT CHECKED: ", o.skip)
	}
	require.Len(t, o.errs, 2)
	for _, err := range o.errs {
		require.Error(t, err)
		require.True(t, errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH), "%v", err)
		t.Log(err)
	}
}
