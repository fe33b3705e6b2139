package api

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
)

// smuggled is a request that is hidden behind another one.
const smuggled = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"

// ambiguous are fields and a body that two servers may frame differently. %s stands for
// the smuggled request.
var ambiguous = map[string]string{
	"length, then chunked":            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
	"chunked, then length":            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a length of all":                 "Content-Length: 49\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
	"a length of nothing":             "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
	"other cases":                     "cOnTeNt-LeNgTh: 5\r\ntRaNsFeR-eNcOdInG: ChUnKeD\r\n\r\n0\r\n\r\n%s",
	"a tab before the value":          "Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n%s",
	"white space after the value":     "Content-Length: 5\r\nTransfer-Encoding: chunked \t\r\n\r\n0\r\n\r\n%s",
	"a length that is no number":      "Content-Length: five\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
	"chunked alone":                   "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
	"a space before the colon":        "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a space before the other colon":  "Transfer-Encoding: chunked\r\nContent-Length : 5\r\n\r\n0\r\n\r\n%s",
	"a coding twice":                  "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
	"a coding and another":            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a list of codings":               "Transfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a coding that is none":           "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a vertical tab in the coding":    "Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"quotes around the coding":        "Transfer-Encoding: \"chunked\"\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"no coding":                       "Transfer-Encoding:\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"two lengths":                     "Content-Length: 5\r\nContent-Length: 0\r\n\r\n0\r\n\r\n%s",
	"a list of lengths":               "Content-Length: 0, 5\r\n\r\n0\r\n\r\n%s",
	"a sign":                          "Content-Length: +5\r\n\r\n0\r\n\r\n%s",
	"a hexadecimal length":            "Content-Length: 0x5\r\n\r\n0\r\n\r\n%s",
	"a space within the length":       "Content-Length: 5 0\r\n\r\n0\r\n\r\n%s",
	"a carriage return within a line": "X: a\rContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a zero byte":                     "X: a\x00b\r\nContent-Length: 5\r\n\r\n0\r\n\r\n%s",
	"a hexadecimal mark of a chunk":   "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n%s",
	"a sign of a chunk":               "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n%s",
	"a chunk that is too long":        "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n%s",
	"a chunk's line without its CR":   "Transfer-Encoding: chunked\r\n\r\n0\n\r\n%s",
	"an extension with a line feed":   "Transfer-Encoding: chunked\r\n\r\n0;a\n\r\n\r\n%s",
	"a chunk that is cut":             "Transfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n0\r\n\r\n%s",
	"fields after the last chunk":     "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n%s",
}

// answers reads all responses of a connection until the server closes it.
func answers(conn net.Conn) (statuses []int, err error) {
	in := bufio.NewReader(conn)
	for {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			return statuses, nil
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses, err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return statuses, err
		}
		statuses = append(statuses, resp.StatusCode)
	}
}

// TestAmbiguousRequestsEndTheConnection: after a request that another server may frame
// differently the connection carries no other, whatever the handler and the protocol.
func TestAmbiguousRequestsEndTheConnection(t *testing.T) {
	c := testConfig(answering("ok"))
	plain := httptest.NewServer(New(c))
	defer plain.Close()
	starting := httptest.NewServer(Starting(func() string { return "a test" }, nil, nil, nil))
	defer starting.Close()
	encrypted := httptest.NewTLSServer(New(c))
	defer encrypted.Close()
	dial := func(t *testing.T, s *httptest.Server) net.Conn {
		conn := dialWithin(t, s, time.Minute)
		if s == encrypted {
			return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		}
		return conn
	}
	for name, server := range map[string]*httptest.Server{"serving": plain, "starting": starting, "TLS": encrypted} {
		t.Run(name, func(t *testing.T) {
			for form, text := range ambiguous {
				for _, line := range []string{"POST /v1/completions HTTP/1.1", "GET /healthz HTTP/1.1", "POST /nothing HTTP/1.1", "POST /v1/completions HTTP/1.0"} {
					conn := dial(t, server)
					_, err := fmt.Fprintf(conn, line+"\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n"+text, smuggled)
					require.NoError(t, err)
					statuses, err := answers(conn)
					if !errors.Is(err, io.ErrUnexpectedEOF) && err != nil {
						require.ErrorContains(t, err, "reset", "%s: %s", line, form) // closed with data unread
					}
					require.LessOrEqual(t, len(statuses), 1, "%s: %s", line, form)
					_ = conn.Close()
				}
			}
		})
	}
}

// TestForgedLines: whatever a request has in its method, path, fields and body, the log
// has only the server's lines, in either format, and no control character.
func TestForgedLines(t *testing.T) {
	forged := "a\nlevel=ERROR msg=forged\r\x1b[31m\u2028\u202e\"}\n{\"msg\":\"forged\"}"
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler {
			return slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
		},
		"json": func(w io.Writer) slog.Handler {
			return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
		},
	} {
		var log, audit bytes.Buffer
		c := testConfig(answering("ok"))
		c.Log, c.Audit = slog.New(handler(&log)), slog.New(handler(&audit))
		c.APIKeys = []string{"k"}
		h := New(c)
		requests := 0
		send := func(method, path, body string, fields ...string) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Method, r.URL.Path = method, path
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer k")
			for i := 0; i < len(fields); i += 2 {
				r.Header[fields[i]] = []string{fields[i+1]}
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			requests++
		}
		escaped := string(dialect.Marshal(forged))
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/api/chat", "/tokenize", renderRoute, "/" + forged, "/v1/models/" + forged, "/web/" + forged} {
			send("FORGED"+strings.Repeat("!", 60_000), path, "") // a method is a token
			send(http.MethodGet, path, "")
			for _, body := range []string{escaped, `{` + escaped + `:1}`, `{"model":` + escaped + `,"messages":` + escaped + `}`, `{"text":` + escaped + `,` + escaped + `:1}`} {
				send(http.MethodPost, path, body)
			}
			for _, field := range []string{"X-Request-Id", "X-Client-Request-Id", "Authorization", "X-Api-Key", "Content-Type", "Traceparent", "Origin", "User-Agent", "Session_id"} {
				send(http.MethodPost, path, "{}", field, forged)
			}
		}
		require.Equal(t, requests, strings.Count(log.String(), "\n"), "%s: one line for each request", name)
		for _, text := range []string{log.String(), audit.String()} {
			for line := range strings.Lines(text) {
				require.True(t, strings.HasPrefix(line, "time=") || strings.HasPrefix(line, `{"time":`), "%s: %q", name, line)
				require.NotContains(t, strings.TrimSuffix(line, "\n"), "\x1b", name)
				require.NotContains(t, line, "\u202e", name)
				require.Less(t, len(line), 1000, name)
			}
		}
	}
}

// TestRequestsShareAConnection: requests with an announced length, or without a body, do
// not end the connection.
func TestRequestsShareAConnection(t *testing.T) {
	server := httptest.NewServer(New(testConfig(answering("ok"))))
	defer server.Close()
	conn := dialWithin(t, server, time.Minute)
	body := `{"tokens":[72]}`
	request := fmt.Sprintf("POST /detokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_, err := io.WriteString(conn, request+smuggled+request+strings.Replace(smuggled, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
	require.NoError(t, err)
	statuses, err := answers(conn)
	require.NoError(t, err)
	require.Equal(t, []int{200, 200, 200, 200}, statuses)
}
