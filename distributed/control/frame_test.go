package control

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wire is a connection with a script of bytes as its peer; it records each write.
type wire struct {
	net.Conn // not used
	in       io.Reader
	out      [][]byte
	closed   int
}

func (w *wire) Read(b []byte) (int, error) { return w.in.Read(b) }
func (w *wire) Write(b []byte) (int, error) {
	w.out = append(w.out, bytes.Clone(b))
	return len(b), nil
}
func (w *wire) Close() error                     { w.closed++; return nil }
func (w *wire) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 7700} }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

func TestFrameBytes(t *testing.T) {
	w := &wire{}
	c := newConn(w, long)
	require.NoError(t, c.Send(Frame{Type: 0x0102, Flags: 0x0304, Seq: 0x05060708, Payload: []byte("abc")}))
	require.NoError(t, c.Send(Frame{Type: 1}))
	require.Equal(t, [][]byte{
		{3, 0, 0, 0, 2, 1, 4, 3, 8, 7, 6, 5, 'a', 'b', 'c'},
		{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
	}, w.out, "one write each")

	w = &wire{in: bytes.NewReader(bytes.Join(w.out, nil))}
	c = newConn(w, long)
	f, err := c.Receive()
	require.NoError(t, err)
	require.Equal(t, Frame{Type: 0x0102, Flags: 0x0304, Seq: 0x05060708, Payload: []byte("abc")}, f)
	f, err = c.Receive()
	require.NoError(t, err)
	require.Equal(t, Frame{Type: 1, Payload: []byte{}}, f)
	for range 2 {
		_, err = c.Receive()
		require.Equal(t, io.EOF, err)
	}
	require.Zero(t, w.closed, "the end of the input does not close the connection")
}

// TestLongestFrame: its buffers are freed on both sides.
func TestLongestFrame(t *testing.T) {
	client, server := pair(t)
	payload := make([]byte, MaxFrame)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(payload)
	sent := make(chan error, 2)
	go func() {
		sent <- client.Send(Frame{Type: 9, Payload: payload})
		sent <- client.Send(Frame{Type: 10, Payload: payload[:5]})
	}()
	f, err := server.Receive()
	require.NoError(t, err)
	require.True(t, bytes.Equal(payload, f.Payload))
	f, err = server.Receive()
	require.NoError(t, err)
	require.Equal(t, payload[:5], f.Payload)
	require.NoError(t, <-sent)
	require.NoError(t, <-sent)
	require.LessOrEqual(t, cap(server.payload), keptBuffer)
	require.LessOrEqual(t, cap(client.out), keptBuffer)
}

func TestTooLongToSend(t *testing.T) {
	w := &wire{}
	c := newConn(w, long)
	err := c.Send(Frame{Type: 4, Seq: 7, Payload: make([]byte, MaxFrame+1)})
	require.EqualError(t, err, "control connection with 10.0.0.2:7700: frame of type 4, number 7, has 1048577 bytes; at most 1048576 are allowed")
	require.Empty(t, w.out)
	require.NoError(t, c.Send(Frame{Type: 4}), "the connection still works")
}

// TestBadFrames: a damaged frame ends the connection before memory for its
// claimed length is allocated.
func TestBadFrames(t *testing.T) {
	whole := appendFrame(nil, Frame{Type: 4, Seq: 7, Payload: []byte("abcdef")})
	huge := binary.LittleEndian.AppendUint32(nil, MaxFrame+1)
	huge = append(huge, whole[4:]...)
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"half a header", whole[:5], "got 5 of 12 bytes of the header of a frame: unexpected EOF"},
		{"no payload", whole[:12], "got 0 of 6 bytes of the payload of a frame of type 4, number 7: unexpected EOF"},
		{"half a payload", whole[:15], "got 3 of 6 bytes of the payload of a frame of type 4, number 7: unexpected EOF"},
		{"too long", huge, "frame of type 4, number 7, claims 1048577 bytes; at most 1048576 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &wire{in: bytes.NewReader(c.in)}
			conn := newConn(w, long)
			_, err := conn.Receive()
			require.EqualError(t, err, "control connection with 10.0.0.2:7700: "+c.want)
			require.Equal(t, 1, w.closed)
			require.Less(t, cap(conn.payload), keptBuffer)
			_, again := conn.Receive()
			require.Equal(t, err, again)
			require.Equal(t, err, conn.Send(Frame{}))
			require.Empty(t, w.out)
		})
	}
}

// TestLimitReceive: a frame longer than the set limit is refused before memory
// for it is allocated; a frame of exactly that length is accepted.
func TestLimitReceive(t *testing.T) {
	whole := appendFrame(nil, Frame{Type: 4, Seq: 7, Payload: []byte("abcdef")})
	for most, want := range map[int]string{
		5:            "control connection with 10.0.0.2:7700: frame of type 4, number 7, claims 6 bytes; at most 5 are allowed",
		6:            "",
		2 * MaxFrame: "",
	} {
		c := newConn(&wire{in: bytes.NewReader(whole)}, long)
		c.LimitReceive(most)
		_, err := c.Receive()
		if want == "" {
			require.NoError(t, err)
			require.LessOrEqual(t, c.most, MaxFrame)
			continue
		}
		require.EqualError(t, err, want)
		require.Zero(t, cap(c.payload))
	}
}

// TestSendTogether: frames of many goroutines arrive complete, and those of one
// goroutine in order.
func TestSendTogether(t *testing.T) {
	client, server := pair(t)
	const senders, each = 8, 50
	payload := func(sender, i int) []byte {
		r := rand.New(rand.NewPCG(uint64(sender), uint64(i)))
		p := make([]byte, r.IntN(3000))
		for j := range p {
			p[j] = byte(r.Uint32())
		}
		return p
	}
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if err := client.Send(Frame{Type: uint16(s), Flags: 5, Seq: uint32(i), Payload: payload(s, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var next [senders]uint32
	for range senders * each {
		f, err := server.Receive()
		require.NoError(t, err)
		require.Equal(t, next[f.Type], f.Seq)
		require.Equal(t, uint16(5), f.Flags)
		require.True(t, bytes.Equal(payload(int(f.Type), int(f.Seq)), f.Payload))
		next[f.Type]++
	}
	wg.Wait()
}

// tcpPair is two ends over loopback.
func tcpPair(t *testing.T, co Options) (client, server *Conn) {
	ln, err := Listen(t.Context(), "127.0.0.1:0", nil)
	require.NoError(t, err)
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			so := serverOptions(testKey)
			so.Encrypt = co.Encrypt
			server, err = Server(t.Context(), nc, so)
		}
		accepted <- err
	}()
	client, err = Dial(t.Context(), ln.Addr().String(), co)
	require.NoError(t, err)
	require.NoError(t, <-accepted)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	})
	return client, server
}

// TestPeerReadsNothing: the sender gets an error when its timeout is over, and
// every other call on the connection gets the same error, even a waiting one.
func TestPeerReadsNothing(t *testing.T) {
	eitherWay(t, func(t *testing.T, o Options) {
		o.WriteTimeout = 20 * time.Millisecond
		so := serverOptions(testKey)
		so.Encrypt = o.Encrypt
		piped, _, _, _ := shaken(t, o, so)
		over, _ := tcpPair(t, o)
		for name, c := range map[string]*Conn{"pipe": piped, "tcp": over} {
			t.Run(name, func(t *testing.T) {
				received := make(chan error, 1)
				go func() {
					_, err := c.Receive()
					received <- err
				}()
				var others sync.WaitGroup
				for range 4 {
					others.Go(func() {
						for c.Send(Frame{Type: 2, Payload: make([]byte, MaxFrame)}) == nil {
						}
					})
				}
				// The kernel takes some frames before it stops.
				var err error
				for err == nil {
					err = c.Send(Frame{Type: 2, Payload: make([]byte, MaxFrame)})
				}
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.ErrorContains(t, err, "send a frame of type 2, number 0, 1048576 bytes, within 20ms")
				others.Wait()
				require.ErrorIs(t, <-received, os.ErrDeadlineExceeded)
				require.Equal(t, err, c.Send(Frame{}))
				require.NoError(t, c.Close())
			})
		}
	})
}

// TestClose: a waiting Receive returns, the peer reads io.EOF, and a second Close
// is allowed.
func TestClose(t *testing.T) {
	eitherWay(t, func(t *testing.T, o Options) {
		client, server := tcpPair(t, o)
		require.NotEmpty(t, client.LocalAddr().String())
		require.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String())
		received := make(chan error, 1)
		go func() {
			_, err := client.Receive()
			received <- err
		}()
		require.NoError(t, client.Send(Frame{Type: 8, Payload: []byte("goodbye")}))
		require.NoError(t, client.Close())
		require.ErrorIs(t, <-received, net.ErrClosed)
		require.ErrorIs(t, client.Send(Frame{}), net.ErrClosed)
		_, err := client.Receive()
		require.ErrorIs(t, err, net.ErrClosed)
		require.NoError(t, client.Close())

		f, err := server.Receive()
		require.NoError(t, err)
		require.Equal(t, "goodbye", string(f.Payload))
		_, err = server.Receive()
		require.Equal(t, io.EOF, err)
	})
}

// TestLastWordsOutliveAReset: the peer closes while frames from this side are in
// flight, so its kernel resets the connection and sending fails. This side still
// receives what the peer had sent before.
func TestLastWordsOutliveAReset(t *testing.T) {
	eitherWay(t, func(t *testing.T, o Options) {
		client, server := tcpPair(t, o)
		require.NoError(t, client.Send(Frame{Type: 1, Payload: []byte("not read")}))
		_, err := server.in.Peek(1) // it has arrived
		require.NoError(t, err)
		require.NoError(t, client.Send(Frame{Type: 1, Payload: []byte("not read either")}))
		require.NoError(t, server.Send(Frame{Type: 8, Payload: []byte("verdict")}))
		require.NoError(t, server.Close())
		var failed error
		for failed == nil {
			failed = client.Send(Frame{Type: 2})
		}
		require.Equal(t, failed, client.Send(Frame{}), "the first error stays")
		f, err := client.Receive()
		require.NoError(t, err)
		require.Equal(t, "verdict", string(f.Payload))
		_, err = client.Receive()
		require.Error(t, err)
	})
}

// TestFinish: after it the peer reads what was sent and the end, and may continue
// to send; this side receives that until the peer ends too.
func TestFinish(t *testing.T) {
	eitherWay(t, func(t *testing.T, o Options) {
		client, server := tcpPair(t, o)
		require.NoError(t, server.Send(Frame{Type: 8, Payload: []byte("verdict")}))
		server.Finish(long)
		server.Finish(0) // the first one counts
		require.ErrorIs(t, server.Send(Frame{}), net.ErrClosed)
		for i := range 10 {
			require.NoError(t, client.Send(Frame{Type: 2, Seq: uint32(i)}))
		}
		f, err := client.Receive()
		require.NoError(t, err)
		require.Equal(t, "verdict", string(f.Payload))
		_, err = client.Receive()
		require.Equal(t, io.EOF, err)
		require.NoError(t, client.Send(Frame{Type: 2, Seq: 10}), "nothing was reset")
		client.Finish(long)
		for i := range 11 {
			f, err := server.Receive()
			require.NoError(t, err)
			require.Equal(t, uint32(i), f.Seq)
		}
		_, err = server.Receive()
		require.Equal(t, io.EOF, err)
	})
}

// TestFinishIsBounded: the wait for a peer that neither sends nor ends is no
// longer than the argument.
func TestFinishIsBounded(t *testing.T) {
	eitherWay(t, func(t *testing.T, o Options) {
		_, server := tcpPair(t, o)
		server.Finish(time.Millisecond)
		_, err := server.Receive()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// eitherWay runs a test in clear and over TLS.
func eitherWay(t *testing.T, f func(t *testing.T, o Options)) {
	o := clientOptions(testKey)
	t.Run("clear", func(t *testing.T) { f(t, o) })
	o.Encrypt = true
	t.Run("encrypted", func(t *testing.T) { f(t, o) })
}
