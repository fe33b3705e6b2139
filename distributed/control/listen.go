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

	"ringmaster/internal/network"
)

// splitAddr splits HOST:PORT. The host may be empty; the port must be a number.
func splitAddr(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		if _, e := netip.ParseAddr(strings.Trim(addr, "[]")); e == nil && strings.Contains(addr, ":") {
			return "", 0, fmt.Errorf("address %q has no port: give [ADDRESS]:PORT, for example [%s]:7700", addr, strings.Trim(addr, "[]"))
		}
		why := err.Error()
		if ae, ok := errors.AsType[*net.AddrError](err); ok {
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
		return "", 0, fmt.Errorf("address %q: port %q is not a number; ports go from 1 to 65535", addr, text)
	}
	return host, uint16(n), nil
}

// allInterfaces is the error of listening on all interfaces without a key.
func allInterfaces(addr string) error {
	return fmt.Errorf("address %q means all interfaces, so without a key anyone on those networks could join: give --cluster-key-file to every rank, or use one address of this host (%s)",
		addr, network.Own())
}

// checkListen returns an error if the leader must not listen on addr, a HOST:PORT,
// with this key: without a key it may listen on one address only, not on all
// interfaces (an empty host, 0.0.0.0, [::]).
func checkListen(addr string, key []byte) error {
	host, _, err := splitAddr(addr)
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(host)
	if unspecified := host == "" || err == nil && ip.Unmap().IsUnspecified(); unspecified && len(key) == 0 {
		return allInterfaces(addr)
	}
	return nil
}

// Listen listens on addr, a HOST:PORT; port 0 stands for any free one. Without a
// key it refuses to listen on all interfaces (an empty host, 0.0.0.0, [::]).
// Errors name the address and, where it is known, the cure. Accepted connections
// go to Server.
func Listen(ctx context.Context, addr string, key []byte) (net.Listener, error) {
	if err := checkListen(addr, key); err != nil {
		return nil, err
	}
	ln, err := network.Listen(ctx, addr, keepAlive, nil)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		ln, err = listenOwn(ctx, addr, err)
	}
	if err != nil {
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			err = fmt.Errorf("%w: --coordinator must be an address of rank 0's host", err)
		}
		return nil, err
	}
	return checkBound(ln, addr, key)
}

// listenOwn listens on the first address of a name that this host has. It tries all of
// them, because the system tries only one, and some may belong to another host or to an
// interface that is down. failed is the error for that one.
func listenOwn(ctx context.Context, addr string, failed error) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, failed
	}
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, failed
	}
	for _, a := range all {
		ln, err := network.Listen(ctx, net.JoinHostPort(a, port), keepAlive, nil)
		if !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return ln, err
		}
	}
	return nil, failed
}

// checkBound applies the rule of checkListen to the bound address, because a name can
// mean all interfaces, too ("0" does on some systems). It closes ln on error.
func checkBound(ln net.Listener, addr string, key []byte) (net.Listener, error) {
	if a, ok := ln.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() && len(key) == 0 {
		return nil, errors.Join(allInterfaces(addr), ln.Close())
	}
	return ln, nil
}
