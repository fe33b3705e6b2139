package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"ringmaster/distributed/internal/secure"
	"ringmaster/internal/network"
)

// The preamble, all numbers little-endian. Its length, the offsets of magic and
// version, and the format of a reply are the same in every version.
const (
	magic        = "RINGMSTR" // [0:8]
	atVersion    = 8          // u16
	atFlags      = 10         // u16
	atByteOrder  = 12         // u32 in the host's own order
	atNonce      = 16         // [32]
	nonceSize    = 32
	preambleSize = 64 // [48:64] are zero, and ignored

	flagKey     = 1 << 0 // the side has a key and requires a proof
	flagEncrypt = 1 << 1 // the side continues over TLS

	byteOrderMark = 0x01020304
)

// A reply: u16 status, u16 length, body.
const (
	replyHeader  = 4
	replyAccept  = 0 // the body is empty, a proof, or zeros of network.LargeMessage
	replyRefused = 1 // the body is the reason, in UTF-8
	proofSize    = sha256.Size
	maxReason    = 512 // bytes
)

// A proof starts with one of these labels, so that neither side can send back the
// proof that it received.
const (
	clientProof = "ringmaster control: proof of the dialling rank\n"
	serverProof = "ringmaster control: proof of the leader\n"
)

// bindPurpose separates the proofs over TLS from those without TLS and from those of
// other protocols.
const bindPurpose = "ringmaster control: proofs over TLS"

type preamble [preambleSize]byte

func (p *preamble) version() uint16 { return binary.LittleEndian.Uint16(p[atVersion:]) }
func (p *preamble) has(flag uint16) bool {
	return binary.LittleEndian.Uint16(p[atFlags:])&flag != 0
}

// byteOrder returns "little-endian", "big-endian", or a text with the mark if it
// is neither.
func (p *preamble) byteOrder() string {
	switch b := p[atByteOrder : atByteOrder+4]; uint32(byteOrderMark) {
	case binary.LittleEndian.Uint32(b):
		return "little-endian"
	case binary.BigEndian.Uint32(b):
		return "big-endian"
	default:
		return fmt.Sprintf("of unknown byte order %x", b)
	}
}

// mismatch says why the two sides cannot communicate, "" if they can. Both sides
// compute the same text, so that both logs agree.
func mismatch(client, server *preamble) string {
	switch {
	case client.version() != server.version():
		return fmt.Sprintf("the dialling rank uses version %d of the control protocol and the leader version %d: run the same build on every rank",
			client.version(), server.version())
	case client.byteOrder() != server.byteOrder():
		return fmt.Sprintf("the dialling rank's host is %s and the leader's is %s: all hosts of a group need the same byte order",
			client.byteOrder(), server.byteOrder())
	case client.has(flagKey) && !server.has(flagKey):
		return "the dialling rank has a cluster key and the leader has none: give the same --cluster-key-file to every rank, or to none"
	case !client.has(flagKey) && server.has(flagKey):
		return "the dialling rank has no cluster key and the leader has one: give the same --cluster-key-file to every rank, or to none"
	case client.has(flagEncrypt) && !server.has(flagEncrypt):
		return "the dialling rank encrypts and the leader does not: give --cluster-encrypt to every rank, or to none"
	case !client.has(flagEncrypt) && server.has(flagEncrypt):
		return "the dialling rank does not encrypt and the leader does: give --cluster-encrypt to every rank, or to none"
	}
	return ""
}

const wrongKey = "the cluster keys of the dialling rank and of the leader differ: give every rank the same --cluster-key-file"

// ErrKey: the peer does not have this side's key.
var ErrKey = errors.New("the peer has another key")

// keyError is an error that is ErrKey.
type keyError struct{ error }

func (e keyError) Is(target error) bool { return target == ErrKey }
func (e keyError) Unwrap() error        { return e.error }

// handshaker is one side of a handshake.
type handshaker struct {
	nc      net.Conn // over TLS once encrypt has returned
	key     []byte   // of the proofs
	encrypt bool
	nonce   func([]byte)
	large   bool // only the large messages and the end remain
}

// handshake runs one side within the timeout. Its error names the peer.
func handshake(ctx context.Context, nc net.Conn, o Options, side func(*handshaker) error) (*Conn, error) {
	o = o.withDefaults()
	begun, remote := time.Now(), nc.RemoteAddr()
	limited, cancel := context.WithTimeout(ctx, o.handshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(limited, func() { nc.SetDeadline(time.Unix(1, 0)) })
	h := &handshaker{nc: nc, key: o.Key, encrypt: o.Encrypt, nonce: o.nonce}
	err := tune(nc)
	if err == nil && o.Encrypt && len(o.Key) == 0 {
		err = errors.New("encryption needs the cluster's key: give the same --cluster-key-file to every rank")
	}
	if err == nil {
		err = side(h)
	}
	if !stop() && err == nil {
		err = os.ErrDeadlineExceeded // the connection's deadline is the same moment
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return newConn(h.nc, o.WriteTimeout), nil
	case cause == nil && h.large && (network.Large(err) == network.ErrLarge || time.Since(begun) > o.handshakeTimeout/2):
		// This case includes a closed connection, because the side that gives up
		// first closes it.
		err = fmt.Errorf("handshake not completed within %v: %w: %w", o.handshakeTimeout, network.ErrLarge, err)
	case !errors.Is(err, os.ErrDeadlineExceeded): // the error itself says what happened
	case cause != nil:
		err = cause
	default:
		err = fmt.Errorf("handshake not completed within %v (check that the peer is a Ringmaster rank and is running; if so, a firewall drops packets after the connection is made): %w", o.handshakeTimeout, err)
	}
	nc.Close()
	return nil, fmt.Errorf("control connection with %s: handshake: %w", remote, err)
}

func (h *handshaker) client() error {
	mine := h.preamble()
	if err := h.write(mine[:]); err != nil {
		return err
	}
	theirs, err := h.readPreamble()
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w (it closed the connection at once; check that this is the port of --coordinator and not of another program)", err)
	}
	if err != nil {
		return err
	}
	if _, err := h.readReply(0); err != nil {
		return err
	}
	// The leader should have compared already; a leader that has not is rejected
	// here.
	if why := mismatch(&mine, &theirs); why != "" {
		return h.refuse(nil, why)
	}
	if err := h.secure(secure.Client); err != nil {
		return err
	}
	if len(h.key) > 0 {
		if err := h.write(reply(replyAccept, h.proof(clientProof, &mine, &theirs))); err != nil {
			return err
		}
		proof, err := h.readReply(proofSize)
		if err != nil {
			return err
		}
		if !hmac.Equal(proof, h.proof(serverProof, &mine, &theirs)) {
			return keyError{h.refuse(nil, wrongKey)}
		}
	}
	h.large = true
	if err := h.write(largeMessage); err != nil {
		return err
	}
	if _, err := h.readReply(network.LargeMessage); err != nil {
		return err
	}
	return h.write(reply(replyAccept, nil))
}

// largeMessage shows that the path carries large packets.
var largeMessage = reply(replyAccept, make([]byte, network.LargeMessage))

func (h *handshaker) server() error {
	// The client sends first, so that a stranger learns nothing, not even what
	// program this is.
	theirs, err := h.readPreamble()
	if err != nil {
		return err
	}
	mine := h.preamble()
	if why := mismatch(&theirs, &mine); why != "" {
		return h.refuse(mine[:], why)
	}
	if err := h.write(append(mine[:], reply(replyAccept, nil)...)); err != nil {
		return err
	}
	if err := h.secure(secure.Server); err != nil {
		return err
	}
	if len(h.key) > 0 {
		proof, err := h.readReply(proofSize)
		if err != nil {
			return err
		}
		if !hmac.Equal(proof, h.proof(clientProof, &theirs, &mine)) {
			return keyError{h.refuse(nil, wrongKey)}
		}
		if err := h.write(reply(replyAccept, h.proof(serverProof, &theirs, &mine))); err != nil {
			return err
		}
	}
	h.large = true
	if _, err := h.readReply(network.LargeMessage); err != nil {
		return err
	}
	if err := h.write(largeMessage); err != nil {
		return err
	}
	_, err = h.readReply(0)
	return err
}

// secure continues over TLS if this side encrypts. The peer then encrypts too,
// because the preambles say so and the proofs cover them. The proofs that follow are
// bound to this session.
func (h *handshaker) secure(begin func(net.Conn) *tls.Conn) error {
	if !h.encrypt {
		return nil
	}
	c := begin(&bounded{h.nc})
	if err := c.Handshake(); err != nil {
		return fmt.Errorf("TLS: %w", bare(err))
	}
	key, err := secure.Bind(c, h.key, bindPurpose)
	if err != nil {
		return err
	}
	h.nc, h.key = c, key
	return nil
}

func (h *handshaker) preamble() (p preamble) {
	copy(p[:], magic)
	binary.LittleEndian.PutUint16(p[atVersion:], Version)
	var flags uint16
	if len(h.key) > 0 {
		flags |= flagKey
	}
	if h.encrypt {
		flags |= flagEncrypt
	}
	binary.LittleEndian.PutUint16(p[atFlags:], flags)
	binary.NativeEndian.PutUint32(p[atByteOrder:], byteOrderMark)
	h.nonce(p[atNonce : atNonce+nonceSize])
	return p
}

// proof is HMAC-SHA256(key, label, both preambles); the nonces in them make it valid
// for this connection only. Over TLS the key belongs to this session (secure.Bind).
func (h *handshaker) proof(label string, client, server *preamble) []byte {
	m := hmac.New(sha256.New, h.key)
	m.Write([]byte(label))
	m.Write(client[:])
	m.Write(server[:])
	return m.Sum(nil)
}

// refuse sends the reason to the peer, after the bytes that are due before it,
// and returns the error for this side.
func (h *handshaker) refuse(before []byte, why string) error {
	err := fmt.Errorf("rejected the peer: %s", why)
	if e := h.write(append(before, reply(replyRefused, []byte(why))...)); e != nil {
		return fmt.Errorf("%w (and could not send the reason: %w)", err, e)
	}
	return err
}

func reply(status uint16, body []byte) []byte {
	b := make([]byte, replyHeader, replyHeader+len(body))
	binary.LittleEndian.PutUint16(b, status)
	binary.LittleEndian.PutUint16(b[2:], uint16(len(body)))
	return append(b, body...)
}

func (h *handshaker) write(b []byte) error {
	if _, err := h.nc.Write(b); err != nil {
		return fmt.Errorf("sending to the peer: %w", bare(err))
	}
	return nil
}

// read fills b; what names the bytes in errors.
func (h *handshaker) read(b []byte, what string) error {
	n, err := io.ReadFull(h.nc, b)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the peer closed the connection after %d of the %d bytes of its %s: %w", n, len(b), what, io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("reading the peer's %s (got %d of %d bytes): %w", what, n, len(b), bare(err))
	}
	return nil
}

// readPreamble reads the magic first, so that it recognises a stranger by its first
// eight bytes.
func (h *handshaker) readPreamble() (p preamble, err error) {
	if err := h.read(p[:len(magic)], "greeting"); err != nil {
		return p, err
	}
	if string(p[:len(magic)]) != magic {
		return p, fmt.Errorf("the peer is not a Ringmaster rank, because it sent %q; check that this is the port of --coordinator", p[:len(magic)])
	}
	return p, h.read(p[len(magic):], "preamble")
}

// readReply reads a reply and returns its body, which has size bytes. If the peer
// has rejected this side, the error is a *RefusedError.
func (h *handshaker) readReply(size int) ([]byte, error) {
	var head [replyHeader]byte
	if err := h.read(head[:], "reply"); err != nil {
		return nil, err
	}
	status, n := binary.LittleEndian.Uint16(head[:]), int(binary.LittleEndian.Uint16(head[2:]))
	switch {
	case status == replyAccept && n == size:
		body := make([]byte, n)
		return body, h.read(body, "reply")
	case status == replyRefused && n <= maxReason:
		reason := make([]byte, n)
		if err := h.read(reason, "refusal"); err != nil {
			return nil, err
		}
		return nil, &RefusedError{printable(reason)}
	}
	return nil, fmt.Errorf("the peer sent a reply of status %d with %d bytes; expected status %d with %d bytes, or %d with at most %d",
		status, n, replyAccept, size, replyRefused, maxReason)
}
