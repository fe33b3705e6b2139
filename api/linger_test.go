package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dialWithin connects to a server; reads and writes must end within d.
func dialWithin(t *testing.T, server *httptest.Server, d time.Duration) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(d)))
	return conn
}

// TestRefusedBodiesAreReceived: a client that sends all of its body before it reads gets
// the status of the refusal, not a broken connection.
func TestRefusedBodiesAreReceived(t *testing.T) {
	const size = 16 << 20 // more than the buffers of a connection hold
	body := `{` + user + `,"user":"` + strings.Repeat("a", size) + `"}`
	for name, test := range map[string]struct {
		maxBody, taken int64 // bytes of the budget that another request holds
		chunked        bool
		status         int
	}{
		"announced, too large":   {1 << 20, 0, false, http.StatusRequestEntityTooLarge},
		"unannounced, too large": {1 << 20, 0, true, http.StatusRequestEntityTooLarge},
		"announced, no budget":   {32 << 20, 31 << 20, false, http.StatusTooManyRequests},
		"unannounced, no budget": {32 << 20, 31 << 20, true, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(answering("ok"))
			c.MaxBody, c.BodyBudget = test.maxBody, 32<<20
			s := newServer(c)
			if test.taken > 0 {
				require.True(t, s.bodies.open(-1).add(test.taken))
			}
			server := httptest.NewServer(s.handler())
			defer server.Close()
			conn := dialWithin(t, server, time.Minute)
			head := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
			if test.chunked {
				_, err := fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body)
				require.NoError(t, err, "the whole body is received")
			} else {
				_, err := fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
				require.NoError(t, err, "the whole body is received")
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, test.status, resp.StatusCode, "%s", text)
			require.True(t, resp.Close)
		})
	}
}

// TestLingeringEnds: the server waits for a silent refused client no longer than its body
// may take, and not at all for one that has sent Expect: 100-continue. From a client that
// sends without end it reads a bounded amount.
func TestLingeringEnds(t *testing.T) {
	for name, test := range map[string]struct {
		header  string
		timeout time.Duration
	}{
		"silent":  {"", time.Second},
		"expects": {"Expect: 100-continue\r\n", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(answering("ok"))
			c.MaxBody, c.BodyTimeout = 1<<20, test.timeout
			server := httptest.NewServer(New(c))
			defer server.Close()
			conn := dialWithin(t, server, time.Minute)
			_, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", test.header, 2<<20)
			require.NoError(t, err)
			text, err := io.ReadAll(conn)
			require.NoError(t, err, "the server closes the connection in order")
			require.True(t, strings.HasPrefix(string(text), "HTTP/1.1 413 "), "%s", text)
		})
	}
	t.Run("endless", func(t *testing.T) {
		c := testConfig(answering("ok"))
		c.MaxBody, c.BodyTimeout = 1<<20, time.Hour
		server := httptest.NewServer(New(c))
		defer server.Close()
		conn := dialWithin(t, server, time.Minute)
		_, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", int64(1)<<40)
		require.NoError(t, err)
		sent, piece := 0, make([]byte, 1<<20)
		for err == nil {
			n := 0
			n, err = conn.Write(piece)
			sent += n
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%d bytes sent", sent)
		require.GreaterOrEqual(t, sent, lingerBytes)
		require.Less(t, sent, lingerBytes+64<<20, "more than what is read and what buffers hold")
	})
}
