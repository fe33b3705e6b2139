package tcp

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"syscall"

	"ringmaster/distributed/internal/secure"
)

// Data over TLS (Options.Encrypt). Small operations poll and large ones stream as
// they do without TLS, because crypto/tls runs over belowTLS. That connection reads
// without waiting while a small operation polls. It collects encrypted bytes, so
// that one call writes as much as the socket takes, and the sender writes the rest.

// bindPurpose separates the proofs of a data connection over TLS from others.
const bindPurpose = "ringmaster data plane: proofs over TLS"

// collected is how many encrypted bytes of a large part are written at once.
const collected = 128 << 10

// socket is a connection after its handshake.
type socket struct {
	*net.TCPConn
	over *channel // nil: in clear
}

// channel is the TLS of a socket. One goroutine writes at a time, one reads.
type channel struct {
	tls   *tls.Conn
	below *belowTLS
	plain []byte // the frame being sent: header and body
}

// belowTLS is the connection that crypto/tls reads from and writes to.
type belowTLS struct {
	*net.TCPConn
	raw   syscall.RawConn
	poll  bool // Read returns errNothingYet instead of waiting
	keep  bool // Write collects only
	hold  bool // Write collects, and writes when much is collected
	out   []byte
	reads func(fd uintptr) bool
	chunk []byte // argument of reads
	n     int    // its results
	errno syscall.Errno
}

// nothingYet is the error of a read that does not wait. It is temporary, because
// after a temporary error crypto/tls keeps what it has of a record and continues
// with the next read.
type nothingYet struct{}

var errNothingYet net.Error = nothingYet{}

func (nothingYet) Error() string   { return "nothing has been received" }
func (nothingYet) Timeout() bool   { return false }
func (nothingYet) Temporary() bool { return true }

func newChannel(c *net.TCPConn, begin func(net.Conn) *tls.Conn) (*channel, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	b := &belowTLS{TCPConn: c, raw: raw}
	b.reads = func(fd uintptr) bool {
		for {
			if b.n, b.errno = readNow(fd, b.chunk); b.errno != syscall.EINTR {
				return true
			}
		}
	}
	return &channel{tls: begin(b), below: b}, nil
}

// Read implements net.Conn.
func (b *belowTLS) Read(p []byte) (int, error) {
	if !b.poll {
		return b.TCPConn.Read(p)
	}
	b.chunk = p
	err := b.raw.Read(b.reads)
	switch {
	case err != nil:
		return 0, err
	case b.errno == syscall.EAGAIN:
		return 0, errNothingYet
	case b.errno != 0 || b.n <= 0:
		return b.TCPConn.Read(p) // returns the end, or the full error
	}
	return b.n, nil
}

// Write implements net.Conn.
func (b *belowTLS) Write(p []byte) (int, error) {
	if !b.keep && !b.hold {
		return b.TCPConn.Write(p)
	}
	b.out = append(b.out, p...)
	if b.hold && len(b.out) >= collected {
		if err := b.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush writes the collected bytes within the deadline of the connection.
func (b *belowTLS) flush() error {
	_, err := b.TCPConn.Write(b.out)
	b.out = b.out[:0]
	return err
}

// shake runs the handshake of TLS, within the deadline of the connection.
func (s *channel) shake() error {
	return secure.Handshake(s.tls, binary.LittleEndian.AppendUint32(nil, helloMagic))
}

// bind returns the token with which both sides prove themselves in this session.
func (s *channel) bind(token []byte) ([]byte, error) { return secure.Bind(s.tls, token, bindPurpose) }

// read returns received bytes of one record, at most len(b); 0 means none yet. With
// block it waits for the first byte.
func (s *channel) read(b []byte, block bool) (int, error) {
	s.below.poll = !block
	n, err := s.tls.Read(b)
	if err == errNothingYet {
		return 0, nil
	}
	return n, err
}

// encrypt returns the records of a frame, valid until the next call of encrypt or
// stream.
func (s *channel) encrypt(header, body []byte) ([]byte, error) {
	s.plain = append(append(s.plain[:0], header...), body...)
	b := s.below
	b.keep, b.out = true, b.out[:0]
	_, err := s.tls.Write(s.plain)
	b.keep = false
	return b.out, err
}

// stream writes a frame within the deadline of the connection.
func (s *channel) stream(header, body []byte) error {
	b := s.below
	b.hold, b.out = true, b.out[:0]
	defer func() { b.hold = false }()
	if _, err := s.tls.Write(header); err != nil {
		return err
	}
	if _, err := s.tls.Write(body); err != nil {
		return err
	}
	return b.flush()
}
