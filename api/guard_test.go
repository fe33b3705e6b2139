package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

func TestAPIKeys(t *testing.T) {
	c := testConfig(answering("ok"))
	c.APIKeys = []string{"sk-one", "", "sk-two"}
	h := New(c)
	tests := []struct {
		header string
		status int
	}{
		{"", 401}, {"Bearer sk-one", 200}, {"bearer sk-two", 200}, {"Bearer  sk-two ", 200},
		{"Bearer sk-on", 401}, {"Bearer sk-one2", 401}, {"Bearer ", 401}, {"Bearer", 401}, {"Basic sk-one", 401}, {"sk-one", 401},
	}
	for _, tt := range tests {
		w := call(h, "POST", "/v1/chat/completions", `{`+user+`}`, "Authorization", tt.header)
		require.Equal(t, tt.status, w.Code, tt.header)
		if tt.status == 401 {
			require.Equal(t, "invalid_api_key", value(errorOf(t, w).Code))
			require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
		}
	}
	for path, status := range map[string]int{"/": 200, "/healthz": 200, "/readyz": 200, "/metrics": 401, "/v1/models": 401, "/nothing": 401} {
		require.Equal(t, status, call(h, "GET", path, "").Code, path)
	}
}

// TestReadinessTellsNoStranger checks that, if keys are set, only a request with a key
// gets the addresses of ranks.
func TestReadinessTellsNoStranger(t *testing.T) {
	c := testConfig(&fakeEngine{ready: errRank1})
	c.APIKeys = []string{"k"}
	h := New(c)
	for _, header := range []string{"", "Bearer wrong"} {
		w := call(h, "GET", "/readyz", "", "Authorization", header)
		require.Equal(t, 503, w.Code)
		require.JSONEq(t, `{"status":"not ready"}`, w.Body.String())
	}
	w := call(h, "GET", "/readyz", "", "Authorization", "Bearer k")
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), "10.0.0.2")
}

// TestEmptyKeyDoesNotDisableTheCheck: a list of empty keys, as an unset variable gives,
// must refuse every request rather than admit every request.
func TestEmptyKeyDoesNotDisableTheCheck(t *testing.T) {
	c := testConfig(answering("ok"))
	c.APIKeys = []string{""}
	for _, header := range []string{"", "Bearer", "Bearer "} {
		require.Equal(t, 401, call(New(c), "GET", "/v1/models", "", "Authorization", header).Code, header)
	}
}

func TestHosts(t *testing.T) {
	c := testConfig(answering("ok"))
	c.Hosts = LoopbackHosts("Box.local")
	h := New(c)
	for host, status := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200, "box.local:1": 200, "LOCALHOST.": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "": 403, "127.0.0.2": 403,
	} {
		w := call(h, "GET", "/v1/models", "", "Host", host)
		require.Equal(t, status, w.Code, host)
		if status == 403 {
			require.Equal(t, "host_not_allowed", value(errorOf(t, w).Code))
		}
	}
}

func TestCORS(t *testing.T) {
	off := New(testConfig(answering("ok")))
	w := call(off, "GET", "/v1/models", "", "Origin", "https://a.example")
	require.Equal(t, 200, w.Code)
	require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, 405, call(off, "OPTIONS", "/v1/models", "", "Origin", "https://a.example", "Access-Control-Request-Method", "GET").Code)

	c := testConfig(answering("ok"))
	c.CORSOrigins, c.APIKeys = []string{"https://a.example"}, []string{"k"}
	on := New(c)
	w = call(on, "OPTIONS", "/v1/chat/completions", "", "Origin", "https://a.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-os")
	require.Equal(t, 204, w.Code, "a preflight needs no key")
	require.Equal(t, "https://a.example", w.Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, "authorization,x-stainless-os", w.Header().Get("Access-Control-Allow-Headers"))
	w = call(on, "GET", "/v1/models", "", "Origin", "https://a.example")
	require.Equal(t, 401, w.Code)
	require.Equal(t, "https://a.example", w.Header().Get("Access-Control-Allow-Origin"), "a page must be able to read the error")
	w = call(on, "GET", "/v1/models", "", "Origin", "https://b.example", "Authorization", "Bearer k")
	require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Origin", w.Header().Get("Vary"))
}

// TestMediaType checks that browsers may send JSON only, so that a page of another origin
// cannot post without a preflight; programs may send what curl sends by itself.
func TestMediaType(t *testing.T) {
	h := New(testConfig(answering("ok")))
	for media, status := range map[string]struct{ program, browser int }{
		"application/json": {200, 200}, "application/json; charset=utf-8": {200, 200}, "Application/JSON": {200, 200},
		"": {200, 415}, "text/plain": {200, 415}, "text/plain;charset=UTF-8": {200, 415}, "application/x-www-form-urlencoded": {200, 415}, "application/octet-stream": {200, 415},
		"multipart/form-data; boundary=x": {415, 415}, ";": {415, 415}, "text/html": {415, 415},
	} {
		for _, path := range []string{"/v1/chat/completions", "/api/chat"} {
			require.Equal(t, status.program, call(h, "POST", path, `{`+user+`}`, "Content-Type", media).Code, media)
			require.Equal(t, status.program, call(h, "POST", path, `{`+user+`}`, "Content-Type", media, "User-Agent", "curl/8.5.0").Code, media)
			for _, header := range [][2]string{
				{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://localhost"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "none"}, {"Referer", "https://evil.example/"},
				{"Cookie", "a=b"}, {"User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/50.0"},
			} {
				require.Equal(t, status.browser, call(h, "POST", path, `{`+user+`}`, "Content-Type", media, header[0], header[1]).Code, "%s %v", media, header)
			}
		}
	}
}

func TestBodyLimit(t *testing.T) {
	c := testConfig(answering("ok"))
	body := `{` + user + `}`
	c.MaxBody = int64(len(body))
	h := New(c)
	require.Equal(t, 200, call(h, "POST", "/v1/chat/completions", body).Code)
	w := call(h, "POST", "/v1/chat/completions", body+" ")
	require.Equal(t, 413, w.Code)
	require.Equal(t, "request_too_large", value(errorOf(t, w).Code))

	// An announced length is refused before anything is read.
	r := httptest.NewRequest("POST", "/v1/chat/completions", iotest.ErrReader(errors.New("the body was read")))
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = c.MaxBody + 1
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 413, w.Code, w.Body)
	require.Equal(t, "close", w.Header().Get("Connection"))
}

// TestSlowBody checks that a body that does not arrive is a 408, and that one that no
// handler reads does not block the response forever.
func TestSlowBody(t *testing.T) {
	c := testConfig(answering("ok"))
	c.BodyTimeout = time.Millisecond
	ts := httptest.NewServer(New(c))
	defer ts.Close()
	for request, status := range map[string]string{"POST /v1/completions": "408", "GET /healthz": "200"} {
		t.Run(request, func(t *testing.T) {
			conn, err := net.Dial("tcp", ts.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, request+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
			require.NoError(t, err)
			answer, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(answer), "HTTP/1.1 "+status+" "), "%s", answer)
		})
	}
}

// TestPanic checks that a panic in a handler is a 500 and a line in the log, and
// that in a stream it breaks the connection, so that the client does not take the
// answer for complete.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	c := testConfig(&fakeEngine{script: func(int, engine.Request) ([]act, error) { panic("a bug") }})
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	w := call(New(c), "POST", "/v1/chat/completions", `{`+user+`}`)
	require.Equal(t, 500, w.Code)
	e := errorOf(t, w)
	require.Equal(t, "server_error", e.Type)
	require.NotContains(t, e.Message, "a bug")
	require.Contains(t, log.String(), `panic="a string"`)
	require.Contains(t, log.String(), "TestPanic", "the stack shows where")
	require.NotContains(t, log.String(), "a bug", "the text of a panic may quote the body")

	log.Reset()
	c.Engine = &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) { _ = r.Prompt[len(r.Prompt)]; return nil, nil }}
	require.Equal(t, 500, call(New(c), "POST", "/v1/chat/completions", `{`+user+`}`).Code)
	require.Contains(t, log.String(), "index out of range", "a runtime error quotes nothing")

	c = testConfig(&fakeEngine{script: func(int, engine.Request) ([]act, error) {
		return append(answerActs(1, "x")[:1], act{event: engine.Event{Tokens: make([]engine.Token, 1), Usage: engine.Usage{Completion: -1}}}), nil
	}}) // a negative count makes the metrics panic when the stream ends
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { call(New(c), "POST", "/v1/chat/completions", `{`+user+`,"stream":true}`) })
}

// TestLogHasNoTexts checks that neither prompts nor answers are logged.
func TestLogHasNoTexts(t *testing.T) {
	var log bytes.Buffer
	c := testConfig(answering("classified"))
	c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.APIKeys = []string{"sk-hidden"}
	h := New(c)
	call(h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"private"}]}`, "Authorization", "Bearer sk-hidden")
	call(h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"private"}],"stop":["private"],"n":99}`, "Authorization", "Bearer sk-hidden")
	require.Contains(t, log.String(), "route=/v1/chat/completions status=200")
	require.Contains(t, log.String(), "route=/v1/chat/completions status=400")
	for _, secret := range []string{"classified", "private", "sk-hidden"} {
		require.NotContains(t, log.String(), secret)
	}
}

func TestMetrics(t *testing.T) {
	h := New(testConfig(answering("ab")))
	call(h, "POST", "/v1/chat/completions", `{`+user+`}`)
	call(h, "POST", "/v1/chat/completions", `{`+user+`,"n":0}`)
	call(h, "GET", "/some/where", "")
	text := call(h, "GET", "/metrics", "").Body.String()
	for _, line := range []string{
		`ringmaster_http_requests_total{route="/v1/chat/completions",status="200"} 1`,
		`ringmaster_http_requests_total{route="/v1/chat/completions",status="400"} 1`,
		`ringmaster_http_requests_total{route="none",status="404"} 1`,
		`ringmaster_prompt_tokens_total 6`,
		`ringmaster_prompt_tokens_cached_total 2`,
		`ringmaster_completion_tokens_total 3`,
		`ringmaster_first_token_seconds_count 1`,
		`ringmaster_token_seconds_count 2`,
		`ringmaster_engine_queued 3`,
		`ringmaster_engine_active 2`,
		`ringmaster_engine_steps_total 70`,
		`ringmaster_engine_decode_rows_total 60`,
		`ringmaster_draft_tokens_total{depth="1",source="text"} 9`,
		`ringmaster_draft_accepted_tokens_total{depth="1",source="text"} 7`,
		`ringmaster_engine_ready 1`,
		`ringmaster_http_requests_in_flight 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}

// TestCollectors checks that the caller's metrics are exposed too.
func TestCollectors(t *testing.T) {
	c := testConfig(answering("ok"))
	mine := prometheus.NewGauge(prometheus.GaugeOpts{Name: "ringmaster_group_ranks", Help: "Ranks."})
	mine.Set(3)
	c.Collectors = []prometheus.Collector{mine}
	text := call(New(c), "GET", "/metrics", "").Body.String()
	require.Contains(t, text, "\nringmaster_group_ranks 3\n")
	require.Contains(t, text, "\nringmaster_engine_ready 1\n")
	c.Collectors = append(c.Collectors, mine)
	require.Panics(t, func() { New(c) }, "a duplicate metric")
}

// TestShutdown checks that an answer in progress is completed within the grace
// period, and cut short with an error at its end.
func TestShutdown(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%v", patient), func(t *testing.T) {
			gate := make(chan struct{})
			e := &fakeEngine{script: func(int, engine.Request) ([]act, error) {
				acts := answerActs(3, "Hel", "lo")
				acts[1].wait = gate
				return acts, nil
			}}
			s, addr, served := listen(t, New(testConfig(e)), ServerOptions{})
			resp, err := post(t, t.Context(), "http://"+addr+"/v1/chat/completions", `{`+user+`,"stream":true}`)
			require.NoError(t, err)
			defer resp.Body.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() { ended <- s.Shutdown(ctx) }()
			require.NoError(t, <-served)
			if patient {
				close(gate)
			} else {
				cancel()
			}
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			if patient {
				require.NoError(t, <-ended)
				require.True(t, strings.HasSuffix(string(body), "data: [DONE]\n\n"), "%s", body)
				return
			}
			require.True(t, errors.Is(<-ended, context.Canceled))
			require.Contains(t, string(body), `"code":"shutting_down"`)
			require.NotContains(t, string(body), "[DONE]")
		})
	}
}

// TestShutdownSendsTheEnd checks that the connection stays open for the end of a response
// that was cut short, because its handler has returned before that is written.
func TestShutdownSendsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client, served := servePipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, part := range []string{"whole", "cut"} {
				_, _ = io.WriteString(w, part)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		}))
		ended := make(chan error, 1)
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		answer := bufio.NewReader(client)
		until := func(part string) {
			for line := ""; line != part; {
				read, err := answer.ReadString('\n')
				require.NoError(t, err)
				line = strings.TrimSpace(read)
			}
		}
		until("whole")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { ended <- s.Shutdown(ctx) }()
		until("cut")
		synctest.Wait() // the handler has returned, and no client reads the last chunk
		require.Empty(t, ended, "the server closed before the end was sent")
		rest, err := io.ReadAll(answer)
		require.NoError(t, err)
		require.Equal(t, "0\r\n\r\n", string(rest))
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, <-served)
	})
}

// TestShutdownBodies checks that a shutdown at the end of its grace period does not wait
// for a request body, whether a handler reads it or not.
func TestShutdownBodies(t *testing.T) {
	for name, h := range map[string]http.Handler{"read": New(testConfig(answering("ok"))), "not read": Starting(func() string { return "a test" }, nil, nil, nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, client, served := servePipe(t, h)
				_, err := io.WriteString(client, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
				require.NoError(t, err)
				answer := make(chan string, 1)
				go func() {
					all, _ := io.ReadAll(client) // a cut connection shows in what was received
					answer <- string(all)
				}()
				synctest.Wait() // for the body
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				start := time.Now()
				require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
				require.Less(t, time.Since(start), time.Second, "in the fake time of synctest")
				require.NoError(t, <-served)
				require.Contains(t, <-answer, "HTTP/1.1 503 ")
			})
		})
	}
}

// TestShutdownUnread checks that it does not wait forever for a client that does not
// read. The handler sets no deadline, and the connection has no buffer.
func TestShutdownUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client, served := servePipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		synctest.Wait() // for the client to read
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
		require.Equal(t, finalWriteTimeout, time.Since(start), "in the fake time of synctest")
		require.NoError(t, <-served)
	})
}

// TestShutdownLeavesStuckHandlersBehind: a handler that does not end with its context
// delays the end of the process for a bounded time only.
func TestShutdownLeavesStuckHandlersBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s, client, served := servePipe(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gate }))
		_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		synctest.Wait() // the handler runs
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		err = s.Shutdown(ctx)
		require.ErrorIs(t, err, ErrStuck)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, finalTimeout, time.Since(start), "in the fake time of synctest")
		require.NoError(t, <-served)
		close(gate)
	})
}
