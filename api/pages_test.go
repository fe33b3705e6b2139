package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/keys"
	"ringmaster/api/web"
	"ringmaster/internal/testenv"
)

// ranks is a web.Source with a status.
type ranks web.Status

func (r ranks) Status(context.Context) web.Status { return web.Status(r) }

var threeRanks = ranks{Phase: "running", Epoch: 4, Ranks: []web.Rank{{State: "member"}, {Rank: 1, State: "lost", Why: "no heartbeat"}, {Rank: 2, State: "member", Address: "10.0.0.7:1234"}},
	Events: []web.Event{{Time: time.Unix(1_700_000_000, 0), Kind: "lost", Rank: 1, Text: "rank 1 at 10.0.0.6 is gone"}}}

// TestPages checks the routes of the pages, with a key required and without, before
// there is an engine and after.
func TestPages(t *testing.T) {
	c := testConfig(answering("ok"))
	c.APIKeys, c.Hosts = []string{"k"}, LoopbackHosts()
	for name, h := range map[string]http.Handler{"serving": New(c), "starting": Starting(func() string { return "waiting" }, threeRanks, ringOf(t, "k"), LoopbackHosts())} {
		for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/cluster": "text/html; charset=utf-8", "/web/chat.js": "text/javascript; charset=utf-8", "/web/style.css": "text/css; charset=utf-8", "/favicon.ico": "image/svg+xml"} {
			for _, method := range []string{"GET", "HEAD"} {
				w := call(h, method, path, "", "Host", "localhost")
				require.Equal(t, 200, w.Code, name, path)
				require.Equal(t, kind, w.Header().Get("Content-Type"), path)
				require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'")
			}
			require.Equal(t, 403, call(h, "GET", path, "", "Host", "evil.example").Code, path)
		}
		for _, path := range []string{"/web/none.js", "/web/..%2fweb.go", "/web/"} {
			require.GreaterOrEqual(t, call(h, "GET", path, "", "Host", "localhost").Code, 400, path)
		}
	}
}

// TestClusterHistory: the samples of the last hour, which need a key like the status.
func TestClusterHistory(t *testing.T) {
	c := testConfig(answering("ok"))
	require.JSONEq(t, `{"samples": []}`, call(New(c), "GET", "/cluster/history", "").Body.String())
	c.History, c.APIKeys = new(web.History), []string{"k"}
	at := time.Unix(1_700_000_000, 0).UTC()
	c.History.Add(at, web.Counts{})
	c.History.Add(at.Add(web.SampleEvery), web.Counts{Generated: 30, Members: 2, Ranks: 3})
	w := call(New(c), "GET", "/cluster/history", "", "Authorization", "Bearer k")
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.JSONEq(t, `{"samples": [{"time": "2023-11-14T22:13:30Z", "prefill": 0, "decode": 3, "active": 0, "queued": 0, "members": 2, "ranks": 3}]}`, w.Body.String())
	require.Equal(t, 401, call(New(c), "GET", "/cluster/history", "").Code)
}

// TestClusterStatus checks what the cluster page gets, and that strangers get nothing if
// keys are set.
func TestClusterStatus(t *testing.T) {
	c := testConfig(answering("ok"))
	c.Cluster = threeRanks
	w := call(New(c), "GET", "/cluster/status", "")
	require.Equal(t, 200, w.Code)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	s := testenv.FromJSON[web.Status](t, w.Body.Bytes())
	require.Equal(t, threeRanks.Ranks, s.Ranks)
	require.Equal(t, "tiny", s.Model)
	require.Equal(t, &web.Engine{Queued: 3, Active: 2, Steps: 70, DecodeRows: 60}, s.Engine)
	require.True(t, c.Clock.Now().Equal(s.Now))
	require.Empty(t, s.Reason)

	c.Cluster = nil // a handler without ranks
	c.Engine = &fakeEngine{ready: errors.New("no step has run for a minute")}
	w = call(New(c), "GET", "/cluster/status", "")
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	require.Equal(t, "no step has run for a minute", s.Reason)
	require.Contains(t, w.Body.String(), `"ranks":[]`)

	c.Cluster, c.APIKeys = threeRanks, []string{"k"}
	for name, h := range map[string]http.Handler{"serving": New(c), "starting": Starting(func() string { return "waiting" }, threeRanks, ringOf(t, "k"), nil)} {
		for _, key := range []string{"", "Bearer wrong"} {
			w := call(h, "GET", "/cluster/status", "", "Authorization", key)
			require.Equal(t, 401, w.Code, name)
			require.NotContains(t, w.Body.String(), "10.0.0", name)
			require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
		}
		w := call(h, "GET", "/cluster/status", "", "Authorization", "Bearer k")
		require.Equal(t, 200, w.Code, name)
		require.Contains(t, w.Body.String(), "10.0.0.7:1234", name)
	}
}

func TestRenderEndpoint(t *testing.T) {
	c := testConfig(answering("ok"))
	h := New(c)
	for _, x := range []struct {
		body, want string
		status     int
	}{
		{`{"text":"*a*\n\nb","partial":true}`, `{"html":"<p><em>a</em></p>\n","settled":5,"open":"<p>b</p>\n","in_code":false}`, 200},
		{`{"text":"<script>x</script>"}`, `{"html":"<pre><code>&lt;script&gt;x&lt;/script&gt;</code></pre>\n","settled":18,"open":"","in_code":false}`, 200},
		{`{}`, `{"html":"","settled":0,"open":"","in_code":false}`, 200},
		{`{"text":1}`, `"param":"text"`, 400},
		{`{"text":"a","partial":1}`, `"param":"partial"`, 400},
		{`{"text":"` + strings.Repeat("a", web.MaxMarkdown+1) + `"}`, `65537 bytes`, 400},
		{`{"text":"` + strings.Repeat("> ", 100) + `a"}`, `nested`, 400},
		{strings.Repeat(" ", 8*web.MaxMarkdown) + `{}`, `request_too_large`, 413},
		{`[`, `invalid`, 400},
	} {
		w := call(h, "POST", "/web/markdown", x.body)
		require.Equal(t, x.status, w.Code, w.Body)
		got := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(w.Body.String())
		require.Contains(t, got, x.want)
	}
	require.Equal(t, 415, call(h, "POST", "/web/markdown", `{"text":"a"}`, "Content-Type", "text/plain", "Origin", "https://evil.example").Code)
}

// TestRenderNeedsKey checks that rendering needs an API key but does not count as a
// request of the key, because an answer takes one request and many renderings.
func TestRenderNeedsKey(t *testing.T) {
	c := testConfig(answering("ok"))
	f := newKeyFile(t, keys.Key{Name: "one", Hash: keys.Hash("k"), Requests: keys.Limit{N: 1, Per: time.Minute}})
	c.Keys, c.Clock = f.ring(), f.clock
	h := New(c)
	require.Equal(t, 401, call(h, "POST", "/web/markdown", `{"text":"a"}`).Code)
	require.Equal(t, 401, call(h, "POST", "/web/markdown", `{"text":"a"}`, "Authorization", "Bearer x").Code)
	for range 20 {
		require.Equal(t, 200, call(h, "POST", "/web/markdown", `{"text":"a"}`, "Authorization", "Bearer k").Code)
	}
	require.Equal(t, 200, call(h, "POST", "/tokenize", `{"text":"a"}`, "Authorization", "Bearer k").Code)
	require.Equal(t, 429, call(h, "POST", "/tokenize", `{"text":"a"}`, "Authorization", "Bearer k").Code)
}

// TestRenderLimits: the bytes that a key may have rendered are a multiple of its limit of
// requests.
func TestRenderLimits(t *testing.T) {
	c := testConfig(answering("ok"))
	f := newKeyFile(t, keys.Key{Name: "one", Hash: keys.Hash("k"), Requests: keys.Limit{N: 1, Per: time.Hour}}, keys.Key{Name: "two", Hash: keys.Hash("2")})
	c.Keys, c.Clock = f.ring(), f.clock
	h := New(c)
	long := `{"text":"` + strings.Repeat("a", web.MaxMarkdown) + `"}`
	for range keys.RenderBytes / web.MaxMarkdown {
		require.Equal(t, 200, call(h, "POST", renderRoute, long, "Authorization", "Bearer k").Code)
	}
	w := call(h, "POST", renderRoute, `{"text":"a"}`, "Authorization", "Bearer k")
	require.Equal(t, 429, w.Code)
	require.Contains(t, errorOf(t, w).Message, "1/hour requests with 1048576 bytes of Markdown for each, is used up")
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, 200, call(h, "POST", renderRoute, long, "Authorization", "Bearer 2").Code)
	require.Equal(t, 200, call(h, "POST", "/tokenize", `{"text":"a"}`, "Authorization", "Bearer k").Code, "requests are counted apart")
}

// TestRenderPlaces checks that maxRenders texts are rendered at once, waitingRenders more
// wait, and those beyond are refused; a client that disconnects stops waiting.
func TestRenderPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(testConfig(answering("ok")))
		h := s.handler()
		for range maxRenders {
			require.NotNil(t, s.renderPlace(t.Context()))
		}
		send := func(ctx context.Context) <-chan int {
			status := make(chan int, 1)
			r := httptest.NewRequestWithContext(ctx, "POST", renderRoute, strings.NewReader(`{"text":"a"}`))
			r.Header.Set("Content-Type", "application/json")
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				status <- w.Code
			}()
			synctest.Wait()
			return status
		}
		waits := send(t.Context())
		require.Empty(t, waits)
		<-s.rendering
		require.Equal(t, 200, <-waits)
		s.rendering <- struct{}{}

		ctx, cancel := context.WithCancel(t.Context())
		leaves := send(ctx)
		require.Empty(t, leaves)
		cancel()
		require.Equal(t, 499, <-leaves)

		began := time.Now()
		require.Equal(t, 429, <-send(t.Context()), "after a time of its own")
		require.Equal(t, renderWait, time.Since(began), "in the fake time of synctest")
		for range waitingRenders {
			require.True(t, s.renders.take())
		}
		began = time.Now()
		w := call(h, "POST", renderRoute, `{"text":"a"}`)
		require.Equal(t, 429, w.Code)
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		require.Equal(t, began, time.Now(), "at once")
		used, _ := s.renders.usage()
		require.Equal(t, maxRenders+waitingRenders, used, "every way out gives its place back")
	})
}
