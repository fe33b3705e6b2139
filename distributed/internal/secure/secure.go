// Package secure encrypts a connection between two ranks by TLS 1.3 and binds
// their proof of a shared secret to it. It knows nothing of what the connection
// carries; packages control, tcp and rdma/internal/liveness use it (--cluster-encrypt).
//
// Ranks share a secret and have no certificates. TLS alone gives a secret channel with
// an unknown peer (ephemeral keys: forward secrecy). These protocols already prove that
// a rank has the secret; Bind keys that proof with the secret and the session together.
// An attacker in the middle has two sessions with different keys, so it cannot compute
// the proof of either. TLS demands a certificate of the accepting side; each process
// makes a random one, which means nothing. This is the binding "tls-exporter" of RFC
// 9266.
//
// Certificates derived from the secret would need no proof, but would show every client
// a public key on which it can try guesses of the secret. The binder of a pre-shared
// key would show the same to a listener, and crypto/tls has no pre-shared keys.
package secure

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// The binding of RFC 9266.
const (
	exporterLabel = "EXPORTER-Channel-Binding"
	exporterSize  = 32
)

// Client begins TLS on a connection that this side dialled. The handshake runs with
// the first Read or Write, or with Handshake, within the deadline of nc.
func Client(nc net.Conn) *tls.Conn {
	return tls.Client(nc, &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The check is not needed because the peer's proof, which Bind binds to the
		// session, authenticates it.
		InsecureSkipVerify:          true,
		DynamicRecordSizingDisabled: true,
	})
}

// Server is Client for a connection that this side accepted.
func Server(nc net.Conn) *tls.Conn { return tls.Server(nc, server()) }

// server is the configuration of Server, with this process's certificate.
var server = sync.OnceValue(func() *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{certificate()},
		SessionTicketsDisabled:      true, // so that only data arrives
		DynamicRecordSizingDisabled: true,
	}
})

// certificate returns a meaningless certificate for a new key. It cannot fail, because
// its arguments are constant and crypto/rand ends the program on an error.
func certificate() tls.Certificate {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("secure: %v", err))
	}
	// The times are constant, because no side checks them.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		panic(fmt.Sprintf("secure: %v", err))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// Bind returns the key [32] with which the two sides of c prove to each other that they
// have the secret. It is HKDF-SHA256 of the secret, salted with the identity of the
// session, for a purpose. Both sides of one session get the same key, and every other
// session gets a different one. The handshake of c must be complete.
func Bind(c *tls.Conn, secret []byte, purpose string) ([]byte, error) {
	s := c.ConnectionState()
	if !s.HandshakeComplete || s.Version != tls.VersionTLS13 {
		return nil, errors.New("no complete handshake of TLS 1.3")
	}
	session, err := s.ExportKeyingMaterial(exporterLabel, nil, exporterSize)
	if err != nil {
		return nil, fmt.Errorf("keying material of the TLS session: %w", err)
	}
	return hkdf.Key(sha256.New, secret, session, purpose, sha256.Size)
}

// Handshake runs the handshake of TLS on c. If only one side encrypts, the error says
// which one; to detect that, own is how an unencrypted connection of this protocol
// begins.
func Handshake(c *tls.Conn, own []byte) error {
	err := c.Handshake()
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && bytes.HasPrefix(plain.RecordHeader[:], own[:min(len(own), len(plain.RecordHeader))]) {
		return ErrPeerPlain
	}
	return err
}

// The errors when only one of two ranks encrypts.
var (
	ErrPeerPlain     = errors.New("this rank encrypts and the peer does not: give --cluster-encrypt to every rank, or to none")
	ErrPeerEncrypted = errors.New("the peer encrypts and this rank does not: give --cluster-encrypt to every rank, or to none")
)

// Begins reports whether b, the first bytes of a connection (at least 2), begin TLS.
func Begins(b []byte) bool { return len(b) >= 2 && b[0] == 22 && b[1] == 3 } // a record of a handshake
