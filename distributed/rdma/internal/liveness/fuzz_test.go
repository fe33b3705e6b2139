package liveness

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// script is a connection with a peer that sends fixed bytes, whatever it
// receives.
type script struct {
	net.Conn
	said *bytes.Reader
	sent int
}

func (s *script) Read(b []byte) (int, error)  { return s.said.Read(b) }
func (s *script) Write(b []byte) (int, error) { s.sent += len(b); return len(b), nil }

// FuzzHandshake: whatever the other side sends, no side accepts it as a rank
// without the token.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte{})
	f.Add(append([]byte{1, 0, 0, 0}, make([]byte, 2*nonceSize+64)...))
	f.Add(bytes.Repeat([]byte{0xff}, 4+nonceSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &script{said: bytes.NewReader(data)}
		_, err := admit(c, link(0))
		require.Error(t, err, "let in without the token")
		require.LessOrEqual(t, c.sent, nonceSize+32)
		c = &script{said: bytes.NewReader(data)}
		require.Error(t, greet(c, link(1), 0), "taken for rank 0")
		require.Equal(t, 4+nonceSize, c.sent, "the proof is only for a rank that has proved itself")
	})
}

// FuzzNotice: any last message of a rank is a notice of bounded length.
func FuzzNotice(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 'h', 'i'})
	f.Add(bytes.Repeat([]byte{0xff}, noticeHeader))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := read(&script{said: bytes.NewReader(data)}, 3)
		require.Equal(t, 3, n.Peer)
		require.LessOrEqual(t, len(n.Text), mostText)
		if len(data) < noticeHeader {
			require.Equal(t, Notice{Peer: 3, Culprit: 3, Reason: GaveUp}, n)
		}
	})
}
