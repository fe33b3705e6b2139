// Package secure encrypts a connection between two ranks by TLS 1.3 and binds
// their proof of a shared secret to it. It knows nothing of what the connection
// carries; packages control, tcp and rdma/internal/liveness use it (--cluster-encrypt).
//
// Ranks have a secret in common and no certificates. So TLS gives a fresh secret
// channel with somebody (ephemeral keys: forward secrecy), and the proof by which
// a rank shows that it has the secret, which these protocols have anyway, is
// keyed by the secret and the session together (Bind). Somebody in the middle has
// two sessions, with different keys, and cannot compute the proof of either. The
// certificate that TLS demands of the side that accepts is drawn at random by each
// process and means nothing. This is the binding "tls-exporter" of RFC 9266.
//
// Certificates derived from the secret would do without a proof, but show whoever
// connects a public key to try guesses of the secret on; so would the binder of a
// pre-shared key to whoever listens, and crypto/tls has none.
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
		// The peer is authenticated by its proof, which Bind binds to the session.
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
		SessionTicketsDisabled:      true, // nothing arrives that is no data
		DynamicRecordSizingDisabled: true,
	}
})

// certificate returns a certificate that says nothing, of a new key. It cannot
// fail: its arguments are constant, and crypto/rand ends the program instead.
func certificate() tls.Certificate {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("secure: %v", err))
	}
	// Nobody looks at the times, so no clock matters.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		panic(fmt.Sprintf("secure: %v", err))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// Bind returns the key [32] with which the two sides of c, whose handshake is
// done, prove to each other that they have the secret: HKDF-SHA256 of the secret,
// salted with what identifies the session, for a purpose. It is the same on both
// sides of one session, and different in every other.
func Bind(c *tls.Conn, secret []byte, purpose string) ([]byte, error) {
	s := c.ConnectionState()
	if !s.HandshakeComplete || s.Version != tls.VersionTLS13 {
		return nil, errors.New("secure: no complete handshake of TLS 1.3")
	}
	session, err := s.ExportKeyingMaterial(exporterLabel, nil, exporterSize)
	if err != nil {
		return nil, fmt.Errorf("secure: %w", err)
	}
	return hkdf.Key(sha256.New, secret, session, purpose, sha256.Size)
}

// Handshake runs the handshake of TLS on c. Its error says which of the two sides
// does not encrypt, if that is why: own is how an unencrypted connection of this
// protocol begins.
func Handshake(c *tls.Conn, own []byte) error {
	err := c.Handshake()
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && bytes.HasPrefix(plain.RecordHeader[:], own[:min(len(own), len(plain.RecordHeader))]) {
		return ErrPeerPlain
	}
	return err
}

// The errors of two ranks of which only one encrypts.
var (
	ErrPeerPlain     = errors.New("this rank encrypts, the peer does not: give --cluster-encrypt to every rank, or to none")
	ErrPeerEncrypted = errors.New("the peer encrypts, this rank does not: give --cluster-encrypt to every rank, or to none")
)

// Begins reports whether b, the first bytes of a connection, at least 2, begin
// TLS.
func Begins(b []byte) bool { return len(b) >= 2 && b[0] == 22 && b[1] == 3 } // a record of a handshake
