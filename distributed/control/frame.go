package control

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// MaxFrame is the maximum number of bytes in the payload of a frame.
const MaxFrame = 1 << 20

const (
	frameHeader = 12      // u32 length of the payload, u16 type, u16 flags, u32 seq
	keptBuffer  = 1 << 16 // larger buffers are freed after use
)

// Frame is a message. The package gives Type, Flags and Seq no meaning.
type Frame struct {
	Type    uint16
	Flags   uint16
	Seq     uint32
	Payload []byte // at most MaxFrame bytes
}

// appendFrame appends the wire format of f without checking it.
func appendFrame(b []byte, f Frame) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Payload)))
	b = binary.LittleEndian.AppendUint16(b, f.Type)
	b = binary.LittleEndian.AppendUint16(b, f.Flags)
	b = binary.LittleEndian.AppendUint32(b, f.Seq)
	return append(b, f.Payload...)
}

// parseHeader reads the header of a frame. It returns the size of the payload in bytes, and an error if that is more
// than most.
func parseHeader(b *[frameHeader]byte, most int) (f Frame, size int, err error) {
	f.Type = binary.LittleEndian.Uint16(b[4:])
	f.Flags = binary.LittleEndian.Uint16(b[6:])
	f.Seq = binary.LittleEndian.Uint32(b[8:])
	n := binary.LittleEndian.Uint32(b[:])
	if int64(n) > int64(most) {
		return f, 0, fmt.Errorf("frame of type %d, number %d, claims %d bytes; at most %d are allowed", f.Type, f.Seq, n, most)
	}
	return f, int(n), nil
}

// Conn is a control connection after its handshake.
type Conn struct {
	nc           net.Conn // TLS, or raw
	raw          net.Conn // below TLS
	writeTimeout time.Duration

	sending sync.Mutex
	out     []byte // the frame being sent

	in      *bufio.Reader
	payload []byte // of the last frame received
	most    int    // bytes of a payload that Receive accepts

	mu      sync.Mutex
	sendErr error // why sending has ended; what has arrived can still be received
	err     error // the first error; the connection is then closed
}

func newConn(nc net.Conn, writeTimeout time.Duration) *Conn {
	return &Conn{nc: nc, raw: below(nc), writeTimeout: writeTimeout, in: bufio.NewReaderSize(nc, 4096), most: MaxFrame}
}

// Send writes a frame, in one write. Any goroutine may call it; frames are written whole, one after the other, each
// within Options.WriteTimeout. A payload that is too long is an error and leaves the connection usable. Any other error
// ends the connection, because part of the frame may have been sent. Every later Send returns the same error, and so
// does Receive after it has returned what had arrived, within sendDrain.
func (c *Conn) Send(f Frame) error {
	if len(f.Payload) > MaxFrame {
		return fmt.Errorf("control connection with %s: frame of type %d, number %d, has %d bytes; at most %d are allowed",
			c.RemoteAddr(), f.Type, f.Seq, len(f.Payload), MaxFrame)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.mute(); err != nil {
		return err
	}
	c.out = appendFrame(c.out[:0], f)
	err := c.raw.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if err == nil {
		_, err = c.nc.Write(c.out)
	}
	if cap(c.out) > keptBuffer {
		c.out = nil
	}
	if err != nil {
		return c.stopSending(sendDrain, fmt.Errorf("control connection with %s: send a frame of type %d, number %d, %d bytes, within %v: %w",
			c.RemoteAddr(), f.Type, f.Seq, len(f.Payload), c.writeTimeout, bare(err)))
	}
	return nil
}

// Receive waits for the next frame, for Close, or for the end of the
// connection. It has no deadline: to stop waiting for a silent peer, close the
// connection. Only one goroutine may call it at a time. The payload is valid
// until the next call. The error is io.EOF itself if the peer has closed the
// connection between two frames; it wraps net.ErrClosed after Close. Any other
// error closes the connection.
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
	f, size, err := parseHeader(&head, c.most)
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

// LimitReceive makes Receive refuse payloads of more than most bytes, at most MaxFrame, before it allocates memory for
// them, so that a peer that should send little cannot claim much. It must not be called during Receive.
func (c *Conn) LimitReceive(most int) { c.most = min(most, MaxFrame) }

// broken closes the connection after a read that got n of size bytes, and
// returns the error.
func (c *Conn) broken(n, size int, what string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if n == 0 && size == frameHeader {
		return c.fail(fmt.Errorf("control connection with %s: %w", c.RemoteAddr(), bare(err)))
	}
	return c.fail(fmt.Errorf("control connection with %s: got %d of %d bytes of the %s: %w", c.RemoteAddr(), n, size, what, bare(err)))
}

// bare removes the addresses from an error of package net, because our errors name them already.
func bare(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// sendDrain is how long Receive continues after a failed Send, because a peer that closed the connection said why
// before, and this side may not have read that yet.
const sendDrain = time.Second

// Finish ends sending: the peer receives what was sent, then io.EOF. Receive continues until the peer has ended its
// side too, for at most drain. The caller must call it until it returns an error, because a connection that is closed
// with unread data is reset, and a reset may overtake the last messages sent. Finish waits for a Send in progress;
// later ones fail.
func (c *Conn) Finish(drain time.Duration) {
	c.sending.Lock()
	defer c.sending.Unlock()
	if _, ok := c.raw.(halfCloser); !ok {
		c.Close()
		return
	}
	if over, ok := c.nc.(*tls.Conn); ok && c.mute() == nil {
		_ = over.CloseWrite() // announces the end; if that fails, the end of the connection below shows it
	}
	_ = c.stopSending(drain, fmt.Errorf("control connection with %s: %w", c.raw.RemoteAddr(), net.ErrClosed))
}

// halfCloser is a connection that, like TCP, can end its two directions separately.
type halfCloser interface{ CloseWrite() error }

// stopSending ends sending because of err, once, and gives Receive a deadline.
// It returns the first error.
func (c *Conn) stopSending(drain time.Duration, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first := cmp.Or(c.err, c.sendErr); first != nil {
		return first
	}
	c.sendErr = err
	if half, ok := c.raw.(halfCloser); ok {
		_ = half.CloseWrite() // an error means that the peer is gone
	}
	if c.raw.SetReadDeadline(time.Now().Add(drain)) != nil {
		c.err = err
		_ = c.shut()
	}
	return err
}

// fail closes the connection because of err, and returns the first error.
func (c *Conn) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = cmp.Or(c.sendErr, err)
		_ = c.shut()
	}
	return c.err
}

// failed returns why the connection was closed, nil if it was not.
func (c *Conn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// mute returns why sending has ended, nil if it has not.
func (c *Conn) mute() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.err, c.sendErr)
}

// Close closes the connection: what has been sent is delivered, then the peer reads io.EOF. It does not wait for that.
// (If unread frames have arrived here, the kernel resets the connection instead, and the peer reads that error, perhaps
// in place of what was sent; see Finish.) A Send or Receive in progress returns an error that wraps net.ErrClosed. Any
// goroutine may call Close, more than once.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	c.err = fmt.Errorf("control connection with %s: %w", c.raw.RemoteAddr(), net.ErrClosed)
	return c.shut()
}

// LocalAddr returns the address of this side.
func (c *Conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }
