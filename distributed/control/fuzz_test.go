package control

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/network"
)

// FuzzFrames gives arbitrary bytes to Receive: it returns the frames in them,
// however the bytes are split into reads, and allocates no more than one frame.
func FuzzFrames(f *testing.F) {
	one := appendFrame(nil, Frame{Type: 3, Flags: 1, Seq: 9, Payload: []byte("payload")})
	f.Add(one)
	f.Add(append(one, one...))
	f.Add(one[:15])
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Add([]byte{0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // exactly MaxFrame
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, in := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
			c := newConn(&wire{in: in}, long)
			var again []byte
			for {
				frame, err := c.Receive()
				if err != nil {
					rest := data[len(again):]
					require.Equal(t, len(rest) == 0, err == io.EOF)
					if len(rest) >= frameHeader {
						n := binary.LittleEndian.Uint32(rest)
						require.True(t, n > MaxFrame || int(n) > len(rest)-frameHeader, "a good frame was refused: %v", err)
					}
					break
				}
				again = appendFrame(again, frame)
				require.True(t, bytes.HasPrefix(data, again))
			}
			require.LessOrEqual(t, cap(c.payload), MaxFrame)
		}
	})
}

// scripted is a wire without addresses or deadlines to set.
func scripted(in []byte) (*handshaker, *wire) {
	w := &wire{in: bytes.NewReader(in)}
	return &handshaker{nc: w, nonce: fixed(0x5e)}, w
}

// FuzzServer gives arbitrary bytes to the leader's side of a handshake: without
// the key it always fails, and without the magic it sends no byte.
func FuzzServer(f *testing.F) {
	client := clientOptions(testKey)
	hello := greeting(client)
	f.Add([]byte{})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(hello)
	f.Add(append(bytes.Clone(hello), reply(replyAccept, make([]byte, proofSize))...))
	f.Add(append(append(greeting(clientOptions(nil)), largeMessage...), reply(replyAccept, nil)...))
	f.Add(append(greeting(clientOptions(nil)), reply(replyRefused, []byte("no"))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, w := scripted(data)
		h.key = testKey
		require.Error(t, h.server(), "accepted without the key")
		if !bytes.HasPrefix(data, []byte(magic)) || len(data) < preambleSize {
			require.Empty(t, w.out)
		}
		require.LessOrEqual(t, len(w.out), 3)

		// Without a key: exactly the valid handshakes are accepted.
		h, _ = scripted(data)
		err := h.server()
		const accepted = preambleSize + replyHeader + network.LargeMessage + replyHeader
		if len(data) < accepted {
			require.Error(t, err)
			return
		}
		good := string(data[:8]) == magic && data[8] == byte(Version) && data[9] == 0 && data[10]&(flagKey|flagEncrypt) == 0 &&
			binary.NativeEndian.Uint32(data[12:]) == byteOrderMark &&
			bytes.Equal(data[preambleSize:preambleSize+replyHeader], largeMessage[:replyHeader]) &&
			bytes.Equal(data[accepted-replyHeader:accepted], make([]byte, replyHeader))
		require.Equal(t, good, err == nil, "%v", err)
	})
}

// FuzzClient gives arbitrary bytes to the rank's side.
func FuzzClient(f *testing.F) {
	hello := greeting(serverOptions(testKey))
	f.Add([]byte{})
	f.Add(append(bytes.Clone(hello), reply(replyAccept, nil)...))
	f.Add(append(append(bytes.Clone(hello), reply(replyAccept, nil)...), reply(replyAccept, make([]byte, proofSize))...))
	f.Add(append(bytes.Clone(hello), reply(replyRefused, []byte("go away\x00\xff"))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, w := scripted(data)
		h.key = testKey
		err := h.client()
		require.Error(t, err, "accepted a leader without the key")
		require.Equal(t, printable([]byte(err.Error())), err.Error(), "an error that is safe to log")
		require.LessOrEqual(t, len(w.out), 3)
	})
}
