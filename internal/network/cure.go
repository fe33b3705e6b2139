package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Target is what a program dials, in the terms of a cure.
type Target struct {
	Addr string // HOST:PORT as it was given
	Who  string // "rank 0": the owner of the host
	Flag string // "--coordinator": the flag with the address; "" for none
}

// Cure returns, in brackets after a space, what an error of connecting to the target most
// likely means and what to do; "" if nothing is known.
func (t Target) Cure(err error) string { return t.cure(err, runtime.GOOS) }

func (t Target) cure(err error, system string) string {
	host, port, _ := net.SplitHostPort(t.Addr)
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return " (is the host name of " + t.Who + " correct? its IP address can be given instead)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return " (" + t.refused(host, port) + ")"
	case errors.Is(err, syscall.EHOSTUNREACH) && system == "darwin":
		return " (on macOS this most often means that the privacy setting Local Network is off for the program that started this one, such as Terminal: System Settings > Privacy & Security > Local Network; else no route leads there)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return " (no route leads there, or a firewall rejects it: use an address on a network that all ranks share, and let the firewall of " + t.Who + "'s host allow TCP to port " + port + ")"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return " (a firewall of this host forbids it: allow TCP to port " + port + " of " + host + ")"
	case errors.Is(err, syscall.EINVAL) && CheckZone(host) != nil:
		return " (" + CheckZone(host).Error() + ")"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		more := ""
		if system == "darwin" {
			more = "; on macOS also the privacy setting Local Network of the program that started this one"
		}
		return " (no answer: a firewall on " + t.Who + "'s host or on the way drops it, so allow TCP to port " + port + " there; or the address is wrong, or translated (NAT)" + more + ")"
	}
	return ""
}

// refused explains that nothing listens at the target.
func (t Target) refused(host, port string) string {
	if t.Flag == "" {
		return "nothing is listening there: the process of " + t.Who + " has ended, or a firewall rejects it, so allow TCP to port " + port + " on its host"
	}
	if loopback := Loopback(host); loopback != "" {
		return "on this host the name " + host + " means " + loopback + ", this host itself: correct /etc/hosts here, or give " + t.Flag + " the address of " + t.Who + "'s host"
	}
	text := "nothing is listening there: is " + t.Who + " running with this " + t.Flag + "? if it is, a firewall may reject it: allow TCP to port " + port + " on its host"
	if _, err := netip.ParseAddr(host); err != nil {
		text += "; or the name " + host + " means a loopback address on its own host (127.0.1.1, as Debian sets it up), which its log says: give " + t.Flag + " an address of the network on all ranks"
	}
	return text
}

// lookupLimit bounds looking up a name for a message.
const lookupLimit = 2 * time.Second

// Loopback returns the loopback address that a name other than localhost resolves to on
// this host, "" if it resolves to none or is an address.
func Loopback(name string) string {
	if _, err := netip.ParseAddr(name); err == nil || name == "" || name == "localhost" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupLimit)
	defer cancel()
	all, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return ""
	}
	for _, a := range all {
		if ip, err := netip.ParseAddr(a); err == nil && ip.IsLoopback() {
			return a
		}
	}
	return ""
}
