package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// The preamble, all numbers little-endian. Its length and the places of magic
// and version are the same in every version, and so is the form of a reply.
const (
	magic        = "RINGMSTR" // [0:8]
	atVersion    = 8          // u16
	atFlags      = 10         // u16
	atByteOrder  = 12         // u32 in the machine's own order
	atNonce      = 16         // [32]
	nonceSize    = 32
	preambleSize = 64 // [48:64] are zero, and not looked at

	flagKey = 1 << 0 // the side has a key and wants the other's proof

	byteOrderMark = 0x01020304
)

// A reply: u16 status, u16 length, body.
const (
	replyHeader  = 4
	replyGoOn    = 0 // the body is empty, or a proof
	replyRefused = 1 // the body is the reason, in UTF-8
	proofSize    = sha256.Size
	maxReason    = 512 // bytes
)

// What a proof is computed over begins with one of these, so that neither side
// can send back what it was sent.
const (
	clientProof = "ringmaster control: proof of the dialling rank\n"
	serverProof = "ringmaster control: proof of the leader\n"
)

type preamble [preambleSize]byte

func (p *preamble) version() uint16 { return binary.LittleEndian.Uint16(p[atVersion:]) }
func (p *preamble) hasKey() bool {
	return binary.LittleEndian.Uint16(p[atFlags:])&flagKey != 0
}

// byteOrder is "little-endian" or "big-endian", or the mark if it is neither.
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

// mismatch is why the sides cannot go on together, "" if they can. Both sides
// find the same words, so that both logs say the same.
func mismatch(client, server *preamble) string {
	switch {
	case client.version() != server.version():
		return fmt.Sprintf("the dialling rank speaks version %d of the control protocol, the leader version %d: run the same build on every rank",
			client.version(), server.version())
	case client.byteOrder() != server.byteOrder():
		return fmt.Sprintf("the dialling rank's machine is %s, the leader's is %s: a group needs machines of one byte order",
			client.byteOrder(), server.byteOrder())
	case client.hasKey() && !server.hasKey():
		return "the dialling rank has a cluster key, the leader has none: give the same --cluster-key-file to every rank, or to none"
	case !client.hasKey() && server.hasKey():
		return "the dialling rank has no cluster key, the leader has one: give the same --cluster-key-file to every rank, or to none"
	}
	return ""
}

const wrongKey = "the cluster keys of the dialling rank and of the leader differ: give every rank the same --cluster-key-file"

// hand is one side of a handshake.
type hand struct {
	nc    net.Conn
	key   []byte
	nonce func([]byte)
}

// handshake runs one side within the time, and explains what went wrong.
func handshake(ctx context.Context, nc net.Conn, o Options, side func(*hand) error) (*Conn, error) {
	o = o.withDefaults()
	remote := nc.RemoteAddr()
	limited, cancel := context.WithTimeout(ctx, o.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(limited, func() { nc.SetDeadline(time.Unix(1, 0)) })
	err := tune(nc)
	if err == nil {
		err = side(&hand{nc, o.Key, o.Nonce})
	}
	if !stop() && err == nil {
		err = os.ErrDeadlineExceeded // the deadline is set, or will be
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return newConn(nc, o.WriteTimeout), nil
	case !errors.Is(err, os.ErrDeadlineExceeded): // tells what happened
	case cause != nil:
		err = cause
	default:
		err = fmt.Errorf("no complete handshake within %v (is the other side a Ringmaster rank, and is it alive?): %w", o.HandshakeTimeout, err)
	}
	nc.Close()
	return nil, fmt.Errorf("control connection with %s: handshake: %w", remote, err)
}

func (h *hand) client() error {
	mine := h.preamble()
	if err := h.write(mine[:]); err != nil {
		return err
	}
	theirs, err := h.readPreamble()
	if err != nil {
		return err
	}
	if _, err := h.readReply(0); err != nil {
		return err
	}
	// The leader has looked already; one that did not is turned away here.
	if why := mismatch(&mine, &theirs); why != "" {
		return h.refuse(nil, why)
	}
	if len(h.key) > 0 {
		if err := h.write(reply(replyGoOn, h.proof(clientProof, &mine, &theirs))); err != nil {
			return err
		}
		proof, err := h.readReply(proofSize)
		if err != nil {
			return err
		}
		if !hmac.Equal(proof, h.proof(serverProof, &mine, &theirs)) {
			return h.refuse(nil, wrongKey)
		}
	}
	return h.write(reply(replyGoOn, nil))
}

func (h *hand) server() error {
	// The client speaks first: a stranger learns nothing, not even who we are.
	theirs, err := h.readPreamble()
	if err != nil {
		return err
	}
	mine := h.preamble()
	if why := mismatch(&theirs, &mine); why != "" {
		return h.refuse(mine[:], why)
	}
	if err := h.write(append(mine[:], reply(replyGoOn, nil)...)); err != nil {
		return err
	}
	if len(h.key) > 0 {
		proof, err := h.readReply(proofSize)
		if err != nil {
			return err
		}
		if !hmac.Equal(proof, h.proof(clientProof, &theirs, &mine)) {
			return h.refuse(nil, wrongKey)
		}
		if err := h.write(reply(replyGoOn, h.proof(serverProof, &theirs, &mine))); err != nil {
			return err
		}
	}
	_, err = h.readReply(0)
	return err
}

func (h *hand) preamble() (p preamble) {
	copy(p[:], magic)
	binary.LittleEndian.PutUint16(p[atVersion:], Version)
	if len(h.key) > 0 {
		binary.LittleEndian.PutUint16(p[atFlags:], flagKey)
	}
	binary.NativeEndian.PutUint32(p[atByteOrder:], byteOrderMark)
	h.nonce(p[atNonce : atNonce+nonceSize])
	return p
}

// proof is HMAC-SHA256(key, label, both preambles); the nonces in them make it
// good for this connection only.
func (h *hand) proof(label string, client, server *preamble) []byte {
	m := hmac.New(sha256.New, h.key)
	m.Write([]byte(label))
	m.Write(client[:])
	m.Write(server[:])
	return m.Sum(nil)
}

// refuse tells the other side why, after the bytes that are due before, and
// gives the error for this one.
func (h *hand) refuse(before []byte, why string) error {
	err := fmt.Errorf("turned the other side away: %s", why)
	if e := h.write(append(before, reply(replyRefused, []byte(why))...)); e != nil {
		return fmt.Errorf("%w (and could not tell it: %w)", err, e)
	}
	return err
}

func reply(status uint16, body []byte) []byte {
	b := make([]byte, replyHeader, replyHeader+len(body))
	binary.LittleEndian.PutUint16(b, status)
	binary.LittleEndian.PutUint16(b[2:], uint16(len(body)))
	return append(b, body...)
}

func (h *hand) write(b []byte) error {
	if _, err := h.nc.Write(b); err != nil {
		return fmt.Errorf("the other side took no answer: %w", bare(err))
	}
	return nil
}

// read fills b with what is due.
func (h *hand) read(b []byte, what string) error {
	n, err := io.ReadFull(h.nc, b)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the other side closed the connection after %d of the %d bytes of its %s: %w", n, len(b), what, io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("its %s did not come (%d of %d bytes): %w", what, n, len(b), bare(err))
	}
	return nil
}

// readPreamble reads the magic first, so that a stranger is known by its first
// eight bytes.
func (h *hand) readPreamble() (p preamble, err error) {
	if err := h.read(p[:len(magic)], "greeting"); err != nil {
		return p, err
	}
	if string(p[:len(magic)]) != magic {
		return p, fmt.Errorf("the other side is no Ringmaster rank: it begins with %q (is the port the --coordinator's?)", p[:len(magic)])
	}
	return p, h.read(p[len(magic):], "preamble")
}

// readReply reads a reply whose body has size bytes if the other side goes on;
// if it does not, the error is a *RefusedError.
func (h *hand) readReply(size int) ([]byte, error) {
	var head [replyHeader]byte
	if err := h.read(head[:], "reply"); err != nil {
		return nil, err
	}
	status, n := binary.LittleEndian.Uint16(head[:]), int(binary.LittleEndian.Uint16(head[2:]))
	switch {
	case status == replyGoOn && n == size:
		body := make([]byte, n)
		return body, h.read(body, "proof")
	case status == replyRefused && n <= maxReason:
		reason := make([]byte, n)
		if err := h.read(reason, "refusal"); err != nil {
			return nil, err
		}
		return nil, &RefusedError{printable(reason)}
	}
	return nil, fmt.Errorf("the other side sent a reply of status %d with %d bytes; expected status %d with %d bytes, or %d with at most %d",
		status, n, replyGoOn, size, replyRefused, maxReason)
}
