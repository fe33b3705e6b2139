package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed/internal/secure"
)

// script is a connection with a peer that sends fixed bytes, whatever it receives.
type script struct {
	*bytes.Reader
	said int
}

func (s *script) Write(b []byte) (int, error) { s.said += len(b); return len(b), nil }

// FuzzWelcome: whatever a dialler sends, it is not admitted without the token. It gets
// at most one answer, and none before its complete hello unless that begins as TLS does.
func FuzzWelcome(f *testing.F) {
	token := bytes.Repeat([]byte{7}, 32)
	h := hello{version: helloVersion, size: 2, epoch: 7, from: 1, group: groupHash("test")}
	good := h.encode(token)
	f.Add([]byte{})
	f.Add(good[:20])
	f.Add(append(bytes.Clone(good), make([]byte, confirmSize)...))
	f.Add(h.encode(make([]byte, 32)))
	f.Add([]byte("\x16\x0300"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &script{Reader: bytes.NewReader(data)}
		_, err := welcome(c, bytes.NewReader(make([]byte, 32)), func(got hello) ([]byte, status) {
			if got.group != h.group {
				return nil, statusGroup
			}
			return token, statusOK
		})
		require.Error(t, err, "let in without the token")
		require.LessOrEqual(t, c.said, answerSize)
		if len(data) < helloSize && !(len(data) >= 4 && secure.Begins(data)) {
			require.Zero(t, c.said)
		}
	})
}

// FuzzGreet: whatever an acceptor answers, a dialler accepts it as its rank only with
// the token.
func FuzzGreet(f *testing.F) {
	token := bytes.Repeat([]byte{7}, 32)
	h := hello{version: helloVersion, size: 2, epoch: 7, from: 1, group: groupHash("test")}
	f.Add([]byte{})
	f.Add(answer(statusTaken, make([]byte, 32), nil, nil))
	f.Add(answer(statusOK, make([]byte, 32), make([]byte, 32), h.encode(token)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &script{Reader: bytes.NewReader(data)}
		require.Error(t, greet(c, h, token))
		require.Equal(t, helloSize, c.said, "the confirmation is only for a rank that has proved itself")
	})
}
