// Package control is one control connection between a rank and the leader: who
// is on the other end (preamble and authentication, handshake.go) and frames
// (frame.go). It knows nothing of groups, epochs and models; what the frames
// say is package cluster's. The bytes are described in docs/protocol.md.
//
// The rank dials, the leader listens. With a key (--cluster-key-file) both must
// prove that they have it before anything else is read from the other side.
// Frames are neither encrypted nor signed: the key keeps strangers and mistaken
// ranks out, it does not protect a network that others can write to.
package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Version is the version of the protocol, preamble to frames. Both sides must
// have the same.
const Version uint16 = 1

// Options are the settings of a connection. Zero values stand for the defaults.
type Options struct {
	// Key is the secret of the cluster (see ReadKey); empty means that
	// nobody is asked for a proof. Both sides have one, or neither.
	Key []byte
	// HandshakeTimeout is the most that a handshake may take, and in Dial
	// again the most that the connecting before it may. Default 5 s.
	HandshakeTimeout time.Duration
	// WriteTimeout bounds each Send: a peer that reads nothing for so long,
	// or a link that does not take the frame, ends the connection. Default 2 s.
	WriteTimeout time.Duration
	// Nonce fills its argument with bytes that are never used again.
	// Default crypto/rand.
	Nonce func([]byte)
}

func (o Options) withDefaults() Options {
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 5 * time.Second
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 2 * time.Second
	}
	if o.Nonce == nil {
		o.Nonce = func(b []byte) { rand.Read(b) } // never fails: crypto/rand ends the program instead
	}
	return o
}

// RefusedError is what a side gets that the other one has turned away in the
// handshake.
type RefusedError struct {
	Reason string // in the words of the other side, printable, at most 512 bytes
}

// Error gives the reason.
func (e *RefusedError) Error() string { return "turned away: " + e.Reason }

// Dial connects to the leader at addr (HOST:PORT, the host a name, an IPv4
// address or an IPv6 address in brackets; a name is tried in both families) and
// does the handshake. Errors name the address and, where it is known, the cure;
// that of a leader that says no wraps a *RefusedError. Nothing is tried twice.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	o = o.withDefaults()
	if _, port, err := splitAddr(addr); err != nil {
		return nil, err
	} else if port == 0 {
		return nil, fmt.Errorf("address %q: port 0 cannot be dialled; give the port that rank 0 listens on", addr)
	}
	d := net.Dialer{Timeout: o.HandshakeTimeout, KeepAliveConfig: keepAlive}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("connect to %s: %w", addr, cause)
		}
		return nil, fmt.Errorf("connect to %s: %w%s", addr, err, dialCure(err))
	}
	return Client(ctx, nc, o)
}

// dialCure is what to look at after an error of connecting, "" if nothing is
// known.
func dialCure(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return " (is the name of rank 0's machine right? its address can be given instead)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return " (nothing listens there: is rank 0 running, with this --coordinator?)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return " (no way there from this machine: use an address in a network that all ranks share)"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return " (no answer: wrong address, a firewall, or on macOS the privacy setting \"Local Network\")"
	}
	return ""
}

// Client does the handshake as the side that dialled. nc is closed on error.
func Client(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	return handshake(ctx, nc, o, (*hand).client)
}

// Server does the handshake as the side that accepted. nc is closed on error.
func Server(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	return handshake(ctx, nc, o, (*hand).server)
}

// printable makes text from outside fit for a log: valid, without control
// characters.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
}
