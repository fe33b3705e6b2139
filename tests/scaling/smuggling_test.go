//go:build unix

package scaling

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestSmuggling: behind the packaged HAProxy no request hides another one in its body.
// HAProxy sends requests of several clients over one connection to the server, so one that
// only the server sees would get the next client's answer.
func TestSmuggling(t *testing.T) {
	testenv.Need(t, testenv.Full, "ambiguous requests behind HAProxy")
	testenv.NeedTool(t, "haproxy", "no haproxy here (Debian's package haproxy)")
	server, group := harness.Serve(t, testenv.Program(t), "serve", "--threads", "1")
	b := &bed{t: t, ctx: testenv.Within(t, patience)}
	proxy := b.proxy(group, group, "/healthz")
	const hidden = "GET /hidden HTTP/1.1\r\nHost: localhost\r\nX: "
	for form, fields := range map[string]string{
		"length, then chunked":           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked, then length":           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a length of all":                fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 5+len(hidden)),
		"a length of nothing":            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a space before the colon":       "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a vertical tab in the coding":   "Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a coding and another":           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a coding that is none":          "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"two lengths":                    "Content-Length: 5\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
		"a list of lengths":              "Content-Length: 0, 5\r\n\r\n0\r\n\r\n",
		"a sign":                         "Content-Length: +5\r\n\r\n0\r\n\r\n",
		"a folded field":                 "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a line feed alone":              "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a chunk's line without its CR":  "Transfer-Encoding: chunked\r\n\r\n0\n\r\n",
		"an extension with a line feed":  "Transfer-Encoding: chunked\r\n\r\n2;a\n{}\r\n0\r\n\r\n",
		"a hexadecimal mark of a chunk":  "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
		"fields after the last chunk":    "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 50\r\n\r\n",
		"a length as a connection field": "Connection: keep-alive, Content-Length\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	} {
		for _, start := range []string{"POST /v1/completions HTTP/1.1", "GET /healthz HTTP/1.1", "POST /nothing HTTP/1.0"} {
			conn, err := net.Dial("tcp", b.addr)
			require.NoError(t, err)
			_, err = io.WriteString(conn, start+"\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n"+fields+hidden)
			require.NoError(t, err)
			// What answers come is HAProxy's business; others must get their own.
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			_, _ = io.ReadAll(conn)
			for range 3 {
				status, body, err := b.get("/healthz")
				require.NoError(t, err, "%s: %s", start, form)
				require.Equal(t, http.StatusOK, status, "%s: %s: %s", start, form, body)
				require.Equal(t, `{"status":"ok"}`, strings.TrimSpace(body), "%s: %s", start, form)
			}
			_ = conn.Close()
		}
	}
	metrics, err := harness.NewClient(group, nil).Metrics(b.ctx)
	require.NoError(t, err)
	require.Contains(t, metrics, `ringmaster_http_requests_total{route="/healthz",status="200"}`)
	require.True(t, server.Running() && proxy.Running())
}
