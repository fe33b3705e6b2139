package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := Listen(t.Context(), addr, net.KeepAliveConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func port(ln net.Listener) uint16 { return uint16(ln.Addr().(*net.TCPAddr).Port) }

// TestListenIPv4Only: 0.0.0.0 does not open IPv6 too, because a person who wrote it may
// have no firewall for that.
func TestListenIPv4Only(t *testing.T) {
	six, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("NOT CHECKED: no IPv6 here: %v", err)
	}
	require.NoError(t, six.Close())
	ln := listen(t, "0.0.0.0:0")
	_, err = net.DialTimeout("tcp", fmt.Sprintf("[::1]:%d", port(ln)), time.Minute)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	both := port(listen(t, "[::]:0"))
	for _, at := range []string{fmt.Sprint("127.0.0.1:", port(ln)), fmt.Sprint("127.0.0.1:", both), fmt.Sprint("[::1]:", both)} {
		c, err := net.DialTimeout("tcp", at, time.Minute)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// TestNoMultipath: the listener's sockets are plain TCP.
func TestNoMultipath(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	d := Dialer()
	require.False(t, d.MultipathTCP())
	c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	accepted, err := ln.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	for _, end := range []net.Conn{c, accepted} {
		multipath, err := end.(*net.TCPConn).MultipathTCP()
		require.NoError(t, err)
		require.False(t, multipath)
	}
}

func TestListenErrors(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	_, err := Listen(t.Context(), ln.Addr().String(), net.KeepAliveConfig{}, nil)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "listen on "+ln.Addr().String())
	require.ErrorContains(t, err, "stop it, or choose another port")
	_, err = Listen(t.Context(), "192.0.2.1:0", net.KeepAliveConfig{}, nil) // reserved for documentation, so no host has it
	require.ErrorContains(t, err, "not an address of this host, which has ")
	_, err = Listen(t.Context(), "[fe80::1]:0", net.KeepAliveConfig{}, nil)
	require.ErrorContains(t, err, "fe80::1 is a link-local address, which needs the interface of this host that leads to it: give [fe80::1%")
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]Ports{"": {}, "7701": {7701, 7701}, "7701-7708": {7701, 7708}, "65535": {65535, 65535}} {
		p, err := ParsePorts(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p)
		require.Equal(t, text, p.String())
	}
	for _, text := range []string{"0", "-1", "65536", "7708-7701", "7701-", "-7701", "a", "1-2-3", "7701,7702", " 7701"} {
		_, err := ParsePorts(text)
		require.ErrorContains(t, err, "is not a port or a range of ports", text)
	}
}

// TestListenOnARange: the first free port of a range is used; if none is free the error
// says how many are needed.
func TestListenOnARange(t *testing.T) {
	var p Ports
	var first, second net.Listener
	for { // two successive free ports
		a := listen(t, "127.0.0.1:0")
		if port(a) == 65535 {
			continue
		}
		b, err := Listen(t.Context(), net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port(a))+1)), net.KeepAliveConfig{}, nil)
		if err != nil {
			continue
		}
		p = Ports{port(a), port(a) + 1}
		first, second = a, b
		break
	}
	_, err := p.Listen(t.Context(), "127.0.0.1", net.KeepAliveConfig{}, nil)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "no port of --data-port "+p.String()+" is free at 127.0.0.1")
	require.NoError(t, second.Close())
	ln, err := p.Listen(t.Context(), "127.0.0.1", net.KeepAliveConfig{}, nil)
	require.NoError(t, err)
	require.Equal(t, p.Last, port(ln))
	require.NoError(t, ln.Close())
	require.NoError(t, first.Close())
	_, err = p.Listen(t.Context(), "192.0.2.1", net.KeepAliveConfig{}, nil)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL, "another error is not one of ports")
}

func TestCheckZone(t *testing.T) {
	all, err := net.Interfaces()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, host := range []string{"", "localhost", "10.0.0.1", "::1", "fd00::1", "169.254.1.1", "::ffff:169.254.1.1",
		"fe80::1%" + all[0].Name, fmt.Sprintf("fe80::1%%%d", all[0].Index)} {
		require.NoError(t, CheckZone(host), host)
	}
	require.ErrorContains(t, CheckZone("fe80::1"), "needs the interface")
	require.ErrorContains(t, CheckZone("fe80::1%none7"), "this host has no interface none7 that is up; it has ")
}

func TestURLs(t *testing.T) {
	require.Equal(t, []string{"http://10.0.0.1:80"}, URLs("http", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}))
	for _, ip := range []net.IP{net.IPv4zero, net.IPv6unspecified} {
		urls := URLs("https", &net.TCPAddr{IP: ip, Port: 8443})
		require.Equal(t, "https://127.0.0.1:8443", urls[len(urls)-1])
		for _, u := range urls {
			a, err := netip.ParseAddrPort(u[len("https://"):])
			require.NoError(t, err)
			require.False(t, a.Addr().IsUnspecified())
			require.True(t, ip.To4() == nil || a.Addr().Is4(), u)
		}
	}
}

// TestCure: each error of connecting has its explanation, on the system where it happens.
func TestCure(t *testing.T) {
	errno := func(e syscall.Errno) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", e)} }
	coordinator := Target{"10.0.0.1:7700", "rank 0", "--coordinator"}
	data := Target{"10.0.0.2:7701", "rank 1", ""}
	for _, c := range []struct {
		target Target
		err    error
		system string
		want   []string
	}{
		{coordinator, &net.DNSError{Name: "x"}, "linux", []string{"host name of rank 0"}},
		{coordinator, errno(syscall.ECONNREFUSED), "linux", []string{"is rank 0 running with this --coordinator?"}},
		{Target{"rank-0.invalid:7700", "rank 0", "--coordinator"}, errno(syscall.ECONNREFUSED), "linux", []string{"127.0.1.1", "its log says"}},
		{data, errno(syscall.ECONNREFUSED), "linux", []string{"the process of rank 1 has ended, or a firewall rejects it", "port 7701"}},
		{coordinator, errno(syscall.EHOSTUNREACH), "darwin", []string{"Privacy & Security > Local Network"}},
		{coordinator, errno(syscall.EHOSTUNREACH), "linux", []string{"a firewall rejects it", "rank 0's host allow TCP to port 7700"}},
		{coordinator, errno(syscall.ENETUNREACH), "darwin", []string{"no route leads there"}},
		{data, context.DeadlineExceeded, "linux", []string{"a firewall on rank 1's host", "allow TCP to port 7701", "NAT"}},
		{data, errno(syscall.ETIMEDOUT), "darwin", []string{"a firewall on rank 1's host", "Local Network"}},
		{data, errno(syscall.EPERM), "linux", []string{"a firewall of this host", "port 7701 of 10.0.0.2"}},
		{Target{"[fe80::1]:7701", "rank 1", ""}, errno(syscall.EINVAL), "linux", []string{"needs the interface"}},
	} {
		got := c.target.cure(c.err, c.system)
		for _, w := range c.want {
			require.Contains(t, got, w, "%v on %s", c.err, c.system)
		}
	}
	require.Empty(t, coordinator.Cure(errors.New("anything else")))
}

func TestLoopback(t *testing.T) {
	for _, name := range []string{"", "localhost", "127.0.0.1", "::1", "10.0.0.1"} {
		require.Empty(t, Loopback(name), name)
	}
}
