//go:build unix

// Package campaign attacks a running server: malformed HTTP and JSON from many
// clients at once, beside streams that come and go. Afterwards the server must
// have answered all that it should, with no 5xx but the documented ones, and hold
// no more files, goroutines and memory than before.
//
//	scripts/campaign.sh                          a few hundred attacks, as go test does
//	scripts/campaign.sh -duration 10m -seed 7    for ten minutes, others than the default
package campaign

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	duration = flag.Duration("duration", 0, "how long to attack; 0: by number")
	attacks  = flag.Int("attacks", 600, "the number of attacks, without -duration")
	seed     = flag.Uint64("seed", 1, "what the attacks are drawn from")
)

const (
	attackers = 8
	streams   = 20
	// held is how many connections the attackers keep open without finishing
	// what they send; the oldest is closed for one more.
	held = 100
	// bodyBudget bounds what bodies may take: twice the server's --max-body.
	bodyBudget = 16 << 20
)

// allowed are the statuses that docs/operations.md gives: those of our handlers,
// of refused connections, and of net/http for what is no HTTP/1 request.
var allowed = []int{200, 204, 400, 401, 403, 404, 405, 408, 413, 415, 417, 429, 431, 501, 503, 505}

// crew is a campaign under way.
type crew struct {
	s       *server
	left    atomic.Int64 // attacks still to make
	until   time.Time    // zero: by number
	made    atomic.Int64
	streams atomic.Int64 // complete
	mu      sync.Mutex
	open    []net.Conn     // held
	count   map[string]int // "name status"
	failed  []string
}

// more reports whether there is another attack to make.
func (c *crew) more() bool {
	if !c.until.IsZero() {
		return time.Now().Before(c.until)
	}
	return c.left.Add(-1) >= 0
}

func (c *crew) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) < 20 {
		c.failed = append(c.failed, fmt.Sprintf(format, args...))
	}
}

// strike makes an attack and notes the answers.
func (c *crew) strike(a attack, r *rand.Rand) {
	c.made.Add(1)
	nc, err := net.DialTimeout("tcp", c.s.addr, patience)
	if err != nil {
		c.fail("%s: %v", a.name, err)
		return
	}
	conn := nc.(*net.TCPConn)
	_ = conn.SetDeadline(time.Now().Add(patience))
	if a.then == hold {
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // the server need not read all of it
	}
	_, _ = conn.Write(a.bytes(r)) // the server may have hung up already
	switch a.then {
	case abort:
		_ = conn.SetLinger(0)
		_ = conn.Close()
		return
	case hold:
		c.mu.Lock()
		c.open = append(c.open, conn)
		var oldest net.Conn
		if len(c.open) > held {
			oldest, c.open = c.open[0], c.open[1:]
		}
		c.mu.Unlock()
		if oldest != nil {
			_ = oldest.Close()
		}
		return
	case half:
		_ = conn.CloseWrite()
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		if n > 0 {
			// More answers only to more requests, which have come by now.
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
				c.fail("%s: no answer within %v", a.name, patience)
			}
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil && a.then == answer && !strings.Contains(err.Error(), "reset") {
			c.fail("%s: the answer with status %d ends early: %v", a.name, resp.StatusCode, err)
		}
		closed := resp.StatusCode == 499 && a.then == half // it has closed its sending side
		if !slices.Contains(allowed, resp.StatusCode) && !closed || resp.StatusCode == 503 && !strings.Contains(string(text), "too_many_connections") {
			c.fail("%s: status %d: %.300s", a.name, resp.StatusCode, text)
		}
		c.mu.Lock()
		c.count[fmt.Sprintf("%d %s", resp.StatusCode, a.name)]++
		c.mu.Unlock()
	}
}

// stream runs streams one after the other until ctx ends; some are cut off.
func (c *crew) stream(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		cut := r.IntN(4) == 0
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Count to %d."}],"stream":true,"max_tokens":%d,"ignore_eos":true}`, r.IntN(1000), 2+r.IntN(30))
		resp, err := c.s.request(context.WithoutCancel(ctx), "POST", "/v1/chat/completions", body)
		if err != nil {
			c.fail("a stream: %v", err)
			return
		}
		if cut {
			_, _ = resp.Body.Read(make([]byte, 100))
			_ = resp.Body.Close()
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == 429 || resp.StatusCode == 503 && strings.Contains(string(text), "too_many_connections"):
		case err != nil || resp.StatusCode != 200 || !strings.HasSuffix(string(text), "data: [DONE]\n\n"):
			c.fail("a stream ends with status %d, %v: %.300s", resp.StatusCode, err, text)
		default:
			c.streams.Add(1)
		}
	}
}

// run attacks by number, or for a time, beside the streams.
func (c *crew) run(ctx context.Context, number int, lasting time.Duration, seed uint64) {
	c.left.Store(int64(number))
	if lasting > 0 {
		c.until = time.Now().Add(lasting)
	}
	streaming, stop := context.WithCancel(ctx)
	var strikes, beside sync.WaitGroup
	for i := range streams {
		beside.Go(func() { c.stream(streaming, rand.New(rand.NewPCG(seed, uint64(1000+i)))) })
	}
	for i := range attackers {
		strikes.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for c.more() && ctx.Err() == nil {
				c.strike(draw(r), r)
			}
		})
	}
	strikes.Wait()
	stop()
	beside.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// idle waits until the server has nothing to do and holds no more files and
// goroutines than most; it returns its metrics then.
func (c *crew) idle(t *testing.T, most map[string]float64) map[string]float64 {
	t.Helper()
	var m map[string]float64
	wrong := func() string {
		var err error
		if m, err = c.s.metrics(t.Context()); err != nil {
			return err.Error()
		}
		for _, name := range []string{"ringmaster_engine_active", "ringmaster_engine_queued", "ringmaster_http_body_bytes", "ringmaster_http_texts_in_flight"} {
			if m[name] != 0 {
				return fmt.Sprintf("%s is %v", name, m[name])
			}
		}
		if n := m["ringmaster_http_connections"]; n != 1 { // that of this request
			return fmt.Sprintf("%v connections", n)
		}
		for name, limit := range most {
			if m[name] > limit {
				return fmt.Sprintf("%s is %v, at most %v expected", name, m[name], limit)
			}
		}
		return ""
	}
	deadline := time.Now().Add(2 * time.Minute) // longer than every timeout of the server
	for why := wrong(); why != ""; why = wrong() {
		require.True(t, time.Now().Before(deadline), "the server does not come to rest: %s", why)
		<-time.After(50 * time.Millisecond)
	}
	return m
}

// TestCampaign is the campaign.
func TestCampaign(t *testing.T) {
	s := serve(t, "", "--api-key", apiKey, "--ctx", "1024", "--max-body", fmt.Sprint(bodyBudget/2))
	c := &crew{s: s, count: map[string]int{}}
	// Once through everything first: what the first of each kind allocates for
	// good is no growth.
	r := rand.New(rand.NewPCG(*seed, 1<<32))
	for _, a := range framings {
		c.strike(a, r)
	}
	c.run(t.Context(), 200, 0, *seed+1)
	before := c.idle(t, nil)
	c.run(t.Context(), *attacks, *duration, *seed)
	after := c.idle(t, map[string]float64{
		"process_open_fds": before["process_open_fds"],
		"go_goroutines":    before["go_goroutines"],
		// What bodies may take is a small multiple of their bytes; beyond the
		// budget nothing may stay.
		"process_resident_memory_bytes": before["process_resident_memory_bytes"] + 4*bodyBudget,
	})
	require.Empty(t, c.failed, "%s", strings.Join(c.failed, "\n"))
	require.Positive(t, c.streams.Load())
	require.NotContains(t, s.Log.String(), "panic")
	require.True(t, s.Running())
	for _, name := range []string{"process_open_fds", "go_goroutines", "process_resident_memory_bytes", "ringmaster_http_connections_evicted_total",
		"ringmaster_http_connections_refused_total", "ringmaster_http_body_refused_total"} {
		t.Logf("%-45s before %12.0f after %12.0f", name, before[name], after[name])
	}
	statuses := map[string]int{}
	for what, n := range c.count {
		status, _, _ := strings.Cut(what, " ")
		statuses[status] += n
	}
	t.Logf("seed %d: %d attacks, answers by status %v, %d streams to their end", *seed, c.made.Load(), statuses, c.streams.Load())
}

// TestFewFiles: under ulimit -n 64, sixty idle connections shut no client out, and
// running requests continue.
func TestFewFiles(t *testing.T) {
	s := serve(t, "ulimit -n 64;", "--api-key", apiKey)
	resp, err := s.request(t.Context(), "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"stream":true,"max_tokens":200,"ignore_eos":true}`)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	for range 60 { // each has an answer and idles, which the server allows for two minutes
		c, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = c.Write(get("GET /healthz HTTP/1.1", host))
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
	}
	for range 5 {
		m, err := s.metrics(t.Context())
		require.NoError(t, err)
		require.Less(t, m["process_open_fds"], 64.0-8, "some files are left")
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(body), "data: [DONE]\n\n"))
}
