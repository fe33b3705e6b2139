package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// splitAddr takes HOST:PORT apart. The host may be empty; the port is a number.
func splitAddr(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		if _, e := netip.ParseAddr(strings.Trim(addr, "[]")); e == nil && strings.Contains(addr, ":") {
			return "", 0, fmt.Errorf("address %q has no port: give [ADDRESS]:PORT, for example [%s]:7700", addr, strings.Trim(addr, "[]"))
		}
		why := err.Error()
		var ae *net.AddrError
		if errors.As(err, &ae) {
			why = ae.Err
		}
		return "", 0, fmt.Errorf("address %q: %s: give HOST:PORT, for example 192.168.1.10:7700 or [fd00::10]:7700", addr, why)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case text == "":
		return "", 0, fmt.Errorf("address %q has no port: give HOST:PORT, for example %s:7700", addr, host)
	case errors.Is(err, strconv.ErrRange), err == nil && n > 65535:
		return "", 0, fmt.Errorf("address %q: port %s is out of range; ports go from 1 to 65535", addr, text)
	case err != nil:
		return "", 0, fmt.Errorf("address %q: port %q is no number; ports go from 1 to 65535", addr, text)
	}
	return host, uint16(n), nil
}

// everywhere is the error of listening on all interfaces without a key.
func everywhere(addr string) error {
	return fmt.Errorf("address %q means every network of this machine, and without a key anybody there could join: give --cluster-key-file to every rank, or one address of this machine (%s)",
		addr, ownAddrs())
}

// CheckListen tells whether a rank with this key may listen on addr, a
// HOST:PORT: without a key only on one address, loopback or an interface's, not
// on all of them (an empty host, 0.0.0.0, [::]). Port 0 stands for any free one.
func CheckListen(addr string, key []byte) error {
	host, _, err := splitAddr(addr)
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(host)
	if unspecified := host == "" || err == nil && ip.Unmap().IsUnspecified(); unspecified && len(key) == 0 {
		return everywhere(addr)
	}
	return nil
}

// Listen listens on addr if CheckListen allows it. Errors name the address and,
// where it is known, the cure. Accepted connections go to Server.
func Listen(ctx context.Context, addr string, key []byte) (net.Listener, error) {
	if err := CheckListen(addr, key); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w%s", addr, err, listenCure(err))
	}
	return checkBound(ln, addr, key)
}

// checkBound is the rule of CheckListen for what addr turned out to mean: a
// name can stand for every network, too ("0" does on some systems).
func checkBound(ln net.Listener, addr string, key []byte) (net.Listener, error) {
	if a, ok := ln.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() && len(key) == 0 {
		return nil, errors.Join(everywhere(addr), ln.Close())
	}
	return ln, nil
}

// listenCure is what to do after an error of listening, "" if nothing is known.
func listenCure(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return " (another program listens there, perhaps another rank 0: end it, or choose another port)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf(" (not an address of this machine, which has %s: rank 0 runs where the coordinator's address is)", ownAddrs())
	case errors.Is(err, syscall.EACCES):
		return " (ports below 1024 are reserved: choose a higher one)"
	}
	return ""
}

// ownAddrs lists the addresses of this machine that others can use, for a
// message: no loopback and no link-local ones.
func ownAddrs() string {
	var list []string
	addrs, _ := net.InterfaceAddrs() // without them the message says less
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			list = append(list, n.IP.String())
		}
	}
	if len(list) == 0 {
		return "127.0.0.1 only"
	}
	return strings.Join(list[:min(len(list), 8)], ", ")
}
