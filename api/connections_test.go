package api

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// addressed is a connection with an address; it counts how often it was closed.
type addressed struct {
	net.Conn
	from   string
	closed int
}

func (c *addressed) Close() error { c.closed++; return nil }
func (c *addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}

// TestConnectionLimits: connections without a request make room, those of the address
// with the most first; running requests are never cut.
func TestConnectionLimits(t *testing.T) {
	table := newConnections(6, 4, slog.New(slog.DiscardHandler))
	open := func(from string, admitted bool) *addressed {
		c := &addressed{from: from}
		require.Equal(t, admitted, table.admit(c), from)
		require.LessOrEqual(t, len(table.open), 6)
		for o, n := range table.from {
			require.LessOrEqual(t, n, 4, o)
		}
		return c
	}
	first := open("10.0.0.9:1", true)
	var flood []*addressed
	for range 200 {
		flood = append(flood, open("10.0.0.1:1", true))
	}
	require.Zero(t, first.closed, "the address that opens many closes its own")
	for i, c := range flood {
		require.Equal(t, i < 196, c.closed == 1, "connection %d", i)
	}
	second := open("10.0.0.8:1", true)
	third := open("10.0.0.7:1", true)
	require.Equal(t, 1, flood[196].closed, "the total is full: the oldest of the flood makes room")

	// All connections of the flood have requests: its next connection is refused, and
	// does not replace one of an address that has fewer.
	for _, c := range flood[197:] {
		table.begin(c, func() {})
	}
	open("10.0.0.1:1", false)
	require.Zero(t, first.closed+second.closed+third.closed)
	fourth := open("10.0.0.6:1", true)
	require.Equal(t, 1, first.closed, "among equals the one that has waited for longest")

	// An answer is complete: its connection waits again.
	table.end(flood[197], false)
	fifth := open("10.0.0.5:1", true)
	require.Equal(t, 1, flood[197].closed)
	require.Zero(t, second.closed+third.closed+fourth.closed+fifth.closed)

	table.room()
	require.Equal(t, 1, second.closed, "two of the flood are busy; the others have one each")
	for _, c := range []*addressed{third, fourth, fifth} {
		table.begin(c, func() {})
	}
	table.room() // no connection can be closed
	require.Equal(t, 5, len(table.open))
	open("10.0.0.4:1", true)
	for _, c := range []*addressed{flood[198], flood[199], third, fourth, fifth} {
		table.end(c, true)
	}
	table.drain(func(net.Conn) { t.Error("nothing is busy") }, time.Minute)
	require.Equal(t, map[string]int{"10.0.0.4": 1}, table.from)
	require.Zero(t, table.busy)
}

// TestConnectionLimitOfAServer: silent connections keep no request out, and beyond
// a full house of requests a client reads why it is refused.
func TestConnectionLimitOfAServer(t *testing.T) {
	gate := make(chan struct{})
	e := &fakeEngine{script: func(int, engine.Request) ([]act, error) {
		acts := answerActs(3, "a", "b")
		acts[1].wait = gate
		return acts, nil
	}}
	s, addr, served := listen(t, New(testConfig(e)), ServerOptions{MaxConnections: 4, MaxPerAddress: 4})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for range 60 { // a byte of a header counts as no request
		_, err := dial().Write([]byte("P"))
		require.NoError(t, err)
	}
	var answers []*http.Response
	for range 4 {
		c := dial()
		body := `{` + user + `,"stream":true}`
		_, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		require.NoError(t, err)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 200, r.StatusCode)
		answers = append(answers, r)
	}
	c := dial()
	_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	refused, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, 503, refused.StatusCode)
	require.Equal(t, "1", refused.Header.Get("Retry-After"))
	body, err := io.ReadAll(refused.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"code":"too_many_connections"`)

	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, line := range []string{"ringmaster_http_connections 4", "ringmaster_http_connections_evicted_total 60", "ringmaster_http_connections_refused_total 1"} {
		require.Contains(t, w.Body.String(), "\n"+line+"\n")
	}
	close(gate)
	for _, r := range answers {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), "[DONE]")
	}
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, <-served)
}

// TestUnreadBodies: a client without a key that announces a body and does not send it
// keeps its connection for a moment only, whether the request is refused or needs neither
// key nor body.
func TestUnreadBodies(t *testing.T) {
	c := testConfig(answering("ok"))
	c.APIKeys = []string{"k"}
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"POST", "/v1/chat/completions", 401}, {"GET", "/nowhere", 401}, {"GET", "/", 200}, {"GET", "/healthz", 200}} {
		d := &bodyDeadlines{header: http.Header{}}
		r, err := http.NewRequest(tt.method, "http://x"+tt.path, strings.NewReader("{}"))
		require.NoError(t, err)
		New(c).ServeHTTP(d, r)
		require.Equal(t, tt.status, d.status, tt.path)
		require.NotEmpty(t, d.reads)
		for _, at := range d.reads {
			require.WithinRange(t, at, time.Now().Add(-time.Minute), time.Now().Add(unreadBodyTimeout), tt.path)
		}
	}
	// With the key the body has its time.
	d := &bodyDeadlines{header: http.Header{}}
	r, err := http.NewRequest("POST", "http://x/v1/chat/completions", strings.NewReader(`{`+user+`}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer k")
	r.Header.Set("Content-Type", "application/json")
	before := time.Now()
	New(c).ServeHTTP(d, r)
	require.Equal(t, 200, d.status)
	require.Len(t, d.reads, 3, "unread, being read, read")
	require.False(t, d.reads[1].Before(before.Add(60*time.Second)))
	require.True(t, d.reads[2].IsZero())
}

// bodyDeadlines is a response whose read deadlines are recorded.
type bodyDeadlines struct {
	header http.Header
	status int
	reads  []time.Time
}

func (d *bodyDeadlines) Header() http.Header         { return d.header }
func (d *bodyDeadlines) Write(b []byte) (int, error) { return len(b), nil }
func (d *bodyDeadlines) WriteHeader(status int)      { d.status = status }
func (d *bodyDeadlines) SetReadDeadline(t time.Time) error {
	d.reads = append(d.reads, t)
	return nil
}
