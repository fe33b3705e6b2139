package control

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// MaxFrame is the most bytes in the payload of a frame.
const MaxFrame = 1 << 20

const (
	frameHeader = 12      // u32 length of the payload, u16 type, u16 flags, u32 seq
	keptBuffer  = 1 << 16 // larger buffers are given back after use
)

// Frame is a message. What Type, Flags and Seq mean is the business of those
// who talk.
type Frame struct {
	Type    uint16
	Flags   uint16
	Seq     uint32
	Payload []byte // at most MaxFrame bytes
}

// appendFrame appends f as it stands on the wire, and checks nothing.
func appendFrame(b []byte, f Frame) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Payload)))
	b = binary.LittleEndian.AppendUint16(b, f.Type)
	b = binary.LittleEndian.AppendUint16(b, f.Flags)
	b = binary.LittleEndian.AppendUint32(b, f.Seq)
	return append(b, f.Payload...)
}

// parseHeader reads the header of a frame and checks the length of its payload.
func parseHeader(b *[frameHeader]byte) (f Frame, size int, err error) {
	f.Type = binary.LittleEndian.Uint16(b[4:])
	f.Flags = binary.LittleEndian.Uint16(b[6:])
	f.Seq = binary.LittleEndian.Uint32(b[8:])
	n := binary.LittleEndian.Uint32(b[:])
	if n > MaxFrame {
		return f, 0, fmt.Errorf("frame of type %d, number %d, claims %d bytes; at most %d are allowed", f.Type, f.Seq, n, MaxFrame)
	}
	return f, int(n), nil
}

// Conn is a control connection after its handshake.
type Conn struct {
	nc           net.Conn
	writeTimeout time.Duration

	sending sync.Mutex
	out     []byte // the frame that is sent

	in      *bufio.Reader
	payload []byte // of the frame received last

	mu  sync.Mutex
	err error // the first; the connection is closed then
}

func newConn(nc net.Conn, writeTimeout time.Duration) *Conn {
	return &Conn{nc: nc, writeTimeout: writeTimeout, in: bufio.NewReaderSize(nc, 4096)}
}

// Send writes a frame, in one write. Any goroutine may call it; frames are
// written whole, one after the other. It ends within Options.WriteTimeout of
// its turn. A payload that is too long is an error of the caller and changes
// nothing; after any other error, told to every later Send and Receive as well,
// the connection is closed, for part of the frame may be on the way.
func (c *Conn) Send(f Frame) error {
	if len(f.Payload) > MaxFrame {
		return fmt.Errorf("control connection with %s: frame of type %d, number %d, has %d bytes; at most %d are allowed",
			c.RemoteAddr(), f.Type, f.Seq, len(f.Payload), MaxFrame)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.failed(); err != nil {
		return err
	}
	c.out = appendFrame(c.out[:0], f)
	err := c.nc.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if err == nil {
		_, err = c.nc.Write(c.out)
	}
	if cap(c.out) > keptBuffer {
		c.out = nil
	}
	if err != nil {
		return c.fail(fmt.Errorf("control connection with %s: send a frame of type %d, number %d, %d bytes, within %v: %w",
			c.RemoteAddr(), f.Type, f.Seq, len(f.Payload), c.writeTimeout, bare(err)))
	}
	return nil
}

// Receive waits for the next frame, for Close, or for the end of the
// connection. It has no deadline of its own: who waits for a silent peer closes
// the connection. One goroutine calls it. The payload is valid until the next
// call. The error is io.EOF itself when the other side has ended the connection
// between two frames; it wraps net.ErrClosed after Close. After any other error
// the connection is closed.
func (c *Conn) Receive() (Frame, error) {
	if err := c.failed(); err != nil {
		return Frame{}, err
	}
	var head [frameHeader]byte
	if n, err := io.ReadFull(c.in, head[:]); err == io.EOF {
		return Frame{}, io.EOF
	} else if err != nil {
		return Frame{}, c.broken(n, frameHeader, "header of a frame", err)
	}
	f, size, err := parseHeader(&head)
	if err != nil {
		return Frame{}, c.fail(fmt.Errorf("control connection with %s: %w", c.RemoteAddr(), err))
	}
	if size > cap(c.payload) || cap(c.payload) > max(size, keptBuffer) {
		c.payload = make([]byte, size)
	}
	f.Payload = c.payload[:size]
	if n, err := io.ReadFull(c.in, f.Payload); err != nil {
		return Frame{}, c.broken(n, size, fmt.Sprintf("payload of a frame of type %d, number %d", f.Type, f.Seq), err)
	}
	return f, nil
}

// broken is the failure of a read that got n of size bytes.
func (c *Conn) broken(n, size int, what string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if n == 0 && size == frameHeader {
		return c.fail(fmt.Errorf("control connection with %s: %w", c.RemoteAddr(), bare(err)))
	}
	return c.fail(fmt.Errorf("control connection with %s: got %d of %d bytes of the %s: %w", c.RemoteAddr(), n, size, what, bare(err)))
}

// bare takes the addresses from an error of the net package: ours name them.
func bare(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// fail closes the connection; the first cause stays.
func (c *Conn) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.nc.Close()
	}
	return c.err
}

func (c *Conn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection in order: what has been sent is delivered, then the
// other side reads io.EOF. It does not wait for that. (Where frames lie here
// that nobody received, the kernel resets the connection instead, and the other
// side reads that error after what it has got.) A Send or Receive under way ends
// with an error that wraps net.ErrClosed. Close may be called again, and by any
// goroutine.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	c.err = fmt.Errorf("control connection with %s: %w", c.nc.RemoteAddr(), net.ErrClosed)
	return c.nc.Close()
}

// Abandon is Close without delivery: what the other side has not got yet is
// dropped, and it reads an error ("connection reset") instead of io.EOF.
func (c *Conn) Abandon() error {
	if tc, ok := c.nc.(*net.TCPConn); ok {
		// An error means that the connection is gone already.
		_ = tc.SetLinger(0)
	}
	return c.Close()
}

// LocalAddr is the address of this side.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// RemoteAddr is the address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }
