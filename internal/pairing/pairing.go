// Package pairing connects a host that knows a short code, or that a group has admitted
// before, with the group: the connection is encrypted, and each side has proved to the other
// that it knows the secret. What the two then say is the caller's concern.
//
// The group runs a Desk. A host calls Dial with the code that the desk shows, or with the
// group's key:
//
//	desk, err := pairing.Open(ctx, pairing.DeskOptions{Group: g, Key: key, Listen: "0.0.0.0:32324", Serve: serve})
//	conn, group, err := pairing.Dial(ctx, "10.0.0.1:32324", pairing.Proof{Code: "4KQ-M2X"})
//
// A code is too short to be the key of a proof, because whoever sees the proof could try all
// codes. So it is the password of a CPace exchange (cpace.go), whose result is the key of the
// handshake of package control over TLS 1.3. An attempt costs a stranger one connection for one
// guess, and the desk limits how many there are. A code belongs to one group.
package pairing

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"ringmaster/distributed/control"
)

// Group is what tells groups apart. It is no secret.
type Group struct {
	ID   string `json:"id"`   // random, idSize bytes in hexadecimal digits
	Name string `json:"name"` // for people; two groups may have the same
}

const (
	idSize  = 16
	maxName = 64 // bytes
)

// NewGroup returns a group with a name.
func NewGroup(name string) Group {
	var id [idSize]byte
	rand.Read(id[:]) // never fails
	return Group{ID: hex.EncodeToString(id[:]), Name: name}
}

// Valid reports whether a group can be one of NewGroup.
func (g Group) Valid() bool {
	id, err := hex.DecodeString(g.ID)
	return err == nil && len(id) == idSize && g.Name != "" && len(g.Name) <= maxName
}

// Fingerprint is short enough that people can compare it.
func (g Group) Fingerprint() string {
	sum := sha256.Sum256([]byte(g.ID))
	return hex.EncodeToString(sum[:4])
}

// String names the group for people.
func (g Group) String() string { return fmt.Sprintf("%s (%s)", g.Name, g.Fingerprint()) }

// channel is what a code is bound to, beside itself.
func (g Group) channel() []byte {
	return lv(nil, []byte("ringmaster pairing 1"), []byte("host"), []byte("desk"), []byte(g.ID))
}

// The greeting of the host: magic, then how it will prove itself, if it will. The desk answers with a
// status; after welcomed follow the group's id, the length of its name and the name, after
// refused the length of the reason and the reason.
const (
	magic = "RMPAIR01"

	byCode = 1
	byKey  = 2
	asking = 3 // only which group this is; the connection ends then

	welcomed = 0
	refused  = 1
)

// greetLimit bounds each side's part before the handshake of package control.
const greetLimit = 4 * time.Second

// mostFrame bounds a message between a host and a desk, in bytes.
const mostFrame = 256 << 10

// options are those of the handshake with the key that an exchange, or the group's own key,
// gives for a purpose.
func options(secret []byte, purpose string) control.Options {
	key, err := hkdf.Key(sha256.New, secret, nil, "ringmaster pairing: "+purpose, sha256.Size)
	if err != nil { // only for a key that is too long
		panic(err)
	}
	return control.Options{Key: key, Encrypt: true, WriteTimeout: writeLimit}
}

// writeLimit bounds the sending of a message.
const writeLimit = 5 * time.Second

// Conn is a connection whose two sides have proved themselves.
type Conn struct {
	c *control.Conn
	// ByCode says that the host proved itself by the code, and not by the group's key.
	ByCode bool
}

// Send sends a message of a kind, as JSON.
func (c *Conn) Send(kind uint16, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.SendBytes(kind, text)
}

// SendBytes sends a message as it is.
func (c *Conn) SendBytes(kind uint16, payload []byte) error {
	if len(payload) > mostFrame {
		return fmt.Errorf("a message of %d bytes; at most %d are allowed", len(payload), mostFrame)
	}
	return c.c.Send(control.Frame{Type: kind, Payload: payload})
}

// Receive waits for a message, at most for limit; the connection ends then, and when ctx
// ends. The payload is valid until the next call.
func (c *Conn) Receive(ctx context.Context, limit time.Duration) (kind uint16, payload []byte, err error) {
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no message for %v", limit))
	defer cancel()
	stop := context.AfterFunc(within, func() { c.c.Close() })
	defer stop()
	f, err := c.c.Receive()
	if cause := context.Cause(within); err != nil && cause != nil {
		err = cause
	}
	return f.Type, f.Payload, err
}

// Read decodes the payload of a message.
func Read[T any](payload []byte) (v T, err error) {
	if err = json.Unmarshal(payload, &v); err != nil {
		err = fmt.Errorf("a message that cannot be read: %w", err)
	}
	return v, err
}

// LocalAddr is this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.c.LocalAddr() }

// RemoteAddr is the other side's address.
func (c *Conn) RemoteAddr() net.Addr { return c.c.RemoteAddr() }

// Close ends the connection.
func (c *Conn) Close() { c.c.Close() }

// readFull reads n bytes of a greeting.
func readFull(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// readShort reads a text after its length, of one byte.
func readShort(r io.Reader) (string, error) {
	n, err := readFull(r, 1)
	if err != nil {
		return "", err
	}
	text, err := readFull(r, int(n[0]))
	return string(text), err
}

// short is a text after its length; what exceeds 255 bytes is left out.
func short(text string) []byte {
	text = text[:min(len(text), 255)]
	return append([]byte{byte(len(text))}, text...)
}
