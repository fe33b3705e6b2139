// Package control is a control connection between a rank and the leader: the
// handshake with its authentication (handshake.go), and frames (frame.go). It
// knows nothing of groups, epochs and models; package cluster defines what the
// frames say. docs/protocol.md describes the bytes.
//
// The rank dials, the leader listens. With a key (--cluster-key-file) both must prove that
// they have it before the other side reads anything else. Unless both sides encrypt
// (--cluster-encrypt), frames are neither encrypted nor signed: the key keeps out strangers
// and ranks of other clusters, but it does not protect a network that others can write to.
//
// The leader calls Listen and, for each accepted connection, Server; a rank calls Dial. Both
// then have a Conn with Send and Receive.
package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	"ringmaster/internal/network"
)

// Version is the version of the protocol, from preamble to frames. Both sides
// must have the same.
const Version uint16 = 2

// Options are the settings of a connection. Zero values stand for the defaults.
type Options struct {
	// Key is the secret of the cluster (see ReadKey); empty means no
	// authentication. Either both sides have a key or neither.
	Key []byte
	// Encrypt makes everything after the preambles travel over TLS 1.3 (package secure). It
	// needs a key. Either both sides encrypt or neither.
	Encrypt bool
	// WriteTimeout bounds each Send: the connection ends if for that time the peer does not
	// read or the link does not carry the frame. Default 2 s.
	WriteTimeout time.Duration

	// Only tests set these.
	handshakeTimeout time.Duration
	nonce            func([]byte) // fills its argument with bytes that are never reused
}

// defaultHandshakeTimeout is far more than a handshake takes, so that only a peer that is no
// rank or is suspended, or a path that drops large packets, reaches it. connectTimeout leaves
// time to send the first packet of a connection three times (after 0, 1 and 3 s). Both are
// short because a person who waits must read within 6 s what is wrong.
const (
	defaultHandshakeTimeout = 4 * time.Second
	connectTimeout          = 4 * time.Second
)

func (o Options) withDefaults() Options {
	if o.handshakeTimeout <= 0 {
		o.handshakeTimeout = defaultHandshakeTimeout
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 2 * time.Second
	}
	if o.nonce == nil {
		o.nonce = func(b []byte) { rand.Read(b) } // never fails: crypto/rand ends the program instead
	}
	return o
}

// RefusedError says that the peer rejected this side in the handshake.
type RefusedError struct {
	Reason string // in the words of the peer, printable, at most 512 bytes
}

// Error returns the reason.
func (e *RefusedError) Error() string { return "rejected: " + e.Reason }

// Dial connects to the leader at addr (HOST:PORT, the host a name, an IPv4 address or an IPv6
// address in brackets; a name is tried in both families) and does the handshake, each within
// 4 s. It does not retry. Errors name the address and, where it is known, the cure; if the
// leader has rejected the rank, the error wraps a *RefusedError.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	o = o.withDefaults()
	host, port, err := splitAddr(addr)
	if err == nil {
		err = network.CheckZone(host)
	}
	if err != nil {
		return nil, err
	}
	if port == 0 {
		return nil, fmt.Errorf("address %q: port 0 cannot be dialled; give the port that rank 0 listens on", addr)
	}
	d := network.Dialer()
	d.Timeout, d.KeepAliveConfig = connectTimeout, keepAlive
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return nil, fmt.Errorf("connect to %s: %w", addr, cause)
		}
		return nil, fmt.Errorf("connect to %s: %w%s", addr, err, network.Target{Addr: addr, Who: "rank 0", Flag: "--coordinator"}.Cure(err))
	}
	return Client(ctx, nc, o)
}

// Client does the handshake, within 4 s, as the side that dialled nc. It closes nc on error.
func Client(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	return handshake(ctx, nc, o, (*handshaker).client)
}

// Server does the handshake, within 4 s, as the side that accepted nc. It closes nc on error.
func Server(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	return handshake(ctx, nc, o, (*handshaker).server)
}

// printable makes text from the peer safe to log: valid UTF-8 without control
// characters.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
}
