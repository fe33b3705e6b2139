package secure

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// join runs a handshake over a pipe.
func join(t *testing.T) (client, server *tls.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	client, server = Client(a), Server(b)
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	require.NoError(t, Handshake(client, []byte("RMh1")))
	require.NoError(t, <-done)
	return client, server
}

// TestBind: the key is the same on both sides, and another for each session,
// secret and purpose.
func TestBind(t *testing.T) {
	client, server := join(t)
	key := func(c *tls.Conn, secret, purpose string) string {
		k, err := Bind(c, []byte(secret), purpose)
		require.NoError(t, err)
		require.Len(t, k, 32)
		return string(k)
	}
	k := key(client, "secret", "purpose")
	require.Equal(t, k, key(server, "secret", "purpose"))
	require.NotEqual(t, k, key(client, "Secret", "purpose"))
	require.NotEqual(t, k, key(client, "secret", "Purpose"))
	other, _ := join(t)
	require.NotEqual(t, k, key(other, "secret", "purpose"))
	require.EqualValues(t, tls.VersionTLS13, client.ConnectionState().Version)
}

// TestBindNeedsASession: Bind fails before the handshake.
func TestBindNeedsASession(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, err := Bind(Client(a), []byte("secret"), "purpose")
	require.ErrorContains(t, err, "no complete handshake")
}

// TestPeerInClear: a peer that begins the same protocol in clear is named;
// anything else is an error of TLS.
func TestPeerInClear(t *testing.T) {
	for says, named := range map[string]bool{"RMh1....": true, "GET / HTTP/1.1": false} {
		a, b := net.Pipe()
		go func() { _, _ = a.Write([]byte(says)[:5]) }()
		err := Handshake(Server(b), []byte("RMh1"))
		require.Error(t, err)
		require.Equal(t, named, err == ErrPeerPlain, says)
		_, _ = a.Close(), b.Close()
	}
	require.True(t, Begins([]byte{22, 3, 1}))
	require.False(t, Begins([]byte("RMh1")))
	require.False(t, Begins(nil))
}
