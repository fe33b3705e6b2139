package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// post sends a request over a real connection; the test reads the response body.
func post(t *testing.T, ctx context.Context, url, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}

func serve(t *testing.T, c Config) string {
	s := httptest.NewServer(New(c))
	t.Cleanup(s.Close)
	return s.URL
}

// stuck is an engine whose answers begin and then hang.
func stuck(begin ...act) *fakeEngine {
	never := make(chan struct{})
	return &fakeEngine{script: func(int, engine.Request) ([]act, error) {
		return append(append([]act(nil), begin...), act{wait: never}), nil
	}}
}

// TestKeepAlive checks that comments are sent while the model produces nothing,
// and none after an interval in which a chunk was sent.
func TestKeepAlive(t *testing.T) {
	gate := make(chan struct{})
	e := &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(3, "Hi")
		acts[0].wait = gate
		acts[1].wait = gate
		return acts, nil
	}}
	c := testConfig(e)
	clock := newClock()
	c.Clock = clock
	url := serve(t, c)
	tick := func() { clock.ticks <- time.Time{} }

	done := make(chan *http.Response)
	go func() {
		resp, err := post(t, t.Context(), url+"/v1/chat/completions", `{`+user+`,"stream":true}`)
		if err != nil {
			panic(err)
		}
		done <- resp
	}()
	tick() // headers and a comment
	resp := <-done
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	line := func() string {
		for lines.Scan() {
			if lines.Text() != "" {
				return lines.Text()
			}
		}
		return "EOF"
	}
	require.Equal(t, ": keep-alive", line())
	tick()
	require.Equal(t, ": keep-alive", line())
	gate <- struct{}{}
	require.Contains(t, line(), `"role":"assistant"`)
	require.Contains(t, line(), `"content":"Hi"`)
	tick() // not silent
	tick()
	require.Equal(t, ": keep-alive", line())
	gate <- struct{}{}
	require.Contains(t, line(), `"finish_reason":"stop"`)
	require.Equal(t, "data: [DONE]", line())
	require.Equal(t, "EOF", line())
}

// TestProgressIsNotShown checks that prefill progress adds no chunks, except that
// it opens the stream.
func TestProgressIsNotShown(t *testing.T) {
	e := &fakeEngine{script: func(int, engine.Request) ([]act, error) {
		p := func(n int) act { return act{event: engine.Event{Progress: engine.Progress{Done: n, Total: 9}}} }
		return append([]act{p(3), p(6), p(9)}, answerActs(9, "Hi")...), nil
	}}
	for path, body := range map[string]string{"chat/completions": `{` + user + `,"stream":true}`, "completions": `{"prompt":"a","stream":true,"echo":true}`} {
		w := call(New(testConfig(e)), "POST", "/v1/"+path, body)
		require.Equal(t, 200, w.Code)
		require.Equal(t, 1, strings.Count(w.Body.String(), `"finish_reason":"stop"`))
		want := map[string]int{"chat/completions": 4, "completions": 3}[path] // role, text, end, [DONE]
		require.Equal(t, want, strings.Count(w.Body.String(), "data: "), w.Body)
	}
}

// TestDisconnect checks that the generation of all choices stops when the client
// disconnects, before and after the first chunk, streaming or not.
func TestDisconnect(t *testing.T) {
	hello := answerActs(3, "Hel")[0]
	tests := []struct {
		name, path, body string
		begin            []act
	}{
		{"chat in prefill", "chat/completions", `{` + user + `,"n":3,"stream":true}`, nil},
		{"chat in the stream", "chat/completions", `{` + user + `,"n":3,"stream":true}`, []act{hello}},
		{"chat as a whole", "chat/completions", `{` + user + `,"n":3}`, []act{hello}},
		{"text in prefill", "completions", `{"prompt":["a","b","c"],"stream":true}`, nil},
		{"text in the stream", "completions", `{"prompt":["a","b","c"],"stream":true}`, []act{hello}},
		{"text as a whole", "completions", `{"prompt":["a","b","c"]}`, []act{hello}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			submitted := make(chan struct{}, 3)
			e := stuck(tt.begin...)
			script := e.script
			e.script = func(i int, r engine.Request) ([]act, error) {
				submitted <- struct{}{}
				return script(i, r)
			}
			h := New(testConfig(e))
			over := make(chan struct{})
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(over)
				h.ServeHTTP(w, r)
			}))
			defer ts.Close()
			ctx, leave := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() {
				resp, err := post(t, ctx, ts.URL+"/v1/"+tt.path, tt.body)
				if err == nil {
					defer resp.Body.Close()
					for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
						err = lines.Err()
					}
				}
				gone <- err
			}()
			for range 3 {
				<-submitted
			}
			leave()
			<-gone
			<-over
			require.Len(t, e.streams, 3)
			for _, s := range e.streams {
				<-s.closed
				require.Error(t, s.ctx.Err(), "the context of Submit lives on")
			}
			w := call(h, "GET", "/metrics", "")
			require.Contains(t, w.Body.String(), fmt.Sprintf(`ringmaster_http_requests_total{route="/v1/%s",status="499"} 1`, tt.path))
		})
	}
}

// TestClientGoneAtSubmit checks that a client that leaves while the engine takes in its
// request is not an error of the server: one that has only closed its sending side reads
// why.
func TestClientGoneAtSubmit(t *testing.T) {
	for path, field := range map[string]string{"chat/completions": user, "completions": `"prompt":"a"`} {
		ctx, leave := context.WithCancel(t.Context())
		e := &fakeEngine{script: func(int, engine.Request) ([]act, error) {
			leave()
			return nil, ctx.Err()
		}}
		h := New(testConfig(e))
		r := httptest.NewRequest("POST", "/v1/"+path, strings.NewReader("{"+field+"}")).WithContext(ctx)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Len(t, e.requests, 1)
		require.Equal(t, 499, w.Code)
		require.Equal(t, "cancelled", value(errorOf(t, w).Code))
		m := call(h, "GET", "/metrics", "")
		require.Contains(t, m.Body.String(), fmt.Sprintf(`ringmaster_http_requests_total{route="/v1/%s",status="499"} 1`, path))
	}
}

// TestSubmitIsAllOrNothing checks that no choice is generated if the engine
// rejects one of them.
func TestSubmitIsAllOrNothing(t *testing.T) {
	for _, body := range []string{`{` + user + `,"n":3}`, `{` + user + `,"n":3,"stream":true}`} {
		e := &fakeEngine{script: func(i int, r engine.Request) ([]act, error) {
			if i == 2 {
				return nil, fmt.Errorf("%w: 64 wait", engine.ErrBusy)
			}
			return answerActs(3, "x"), nil
		}}
		w := call(New(testConfig(e)), "POST", "/v1/chat/completions", body)
		require.Equal(t, 429, w.Code)
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		require.Equal(t, "rate_limit_error", errorOf(t, w).Type)
		require.Len(t, e.streams, 2)
		for _, s := range e.streams {
			<-s.closed
		}
	}
}

// TestEngineErrors checks the status and code of each error of the engine.
func TestEngineErrors(t *testing.T) {
	tests := []struct {
		err    error
		status int
		code   string
	}{
		{engine.ErrBusy, 429, "server_busy"},
		{fmt.Errorf("%w: %w", engine.ErrBusy, engine.ErrShare), 429, "server_busy"},
		{engine.ErrTooLong, 400, "context_length_exceeded"},
		{engine.ErrTooLarge, 400, "exceeds_memory"},
		{engine.ErrInvalid, 400, "invalid_value"},
		{engine.ErrNoMemory, 503, "out_of_memory"},
		{engine.ErrClosed, 503, "shutting_down"},
		{engine.ErrFailed, 503, "model_failed"},
		{engine.ErrUnavailable, 503, "group_unavailable"},
		{&engine.NonFiniteError{Request: 1}, 500, "non_finite_output"},
		{errors.New("secret"), 500, "internal_error"},
	}
	for _, tt := range tests {
		for _, stream := range []bool{false, true} {
			for _, late := range []bool{false, true} {
				e := rejecting(fmt.Errorf("wrapped: %w", tt.err))
				if late {
					e.script = func(int, engine.Request) ([]act, error) { return []act{{err: fmt.Errorf("wrapped: %w", tt.err)}}, nil }
				}
				for path, field := range map[string]string{"chat/completions": user, "completions": `"prompt":"a"`} {
					w := call(New(testConfig(e)), "POST", "/v1/"+path, fmt.Sprintf(`{%s,"stream":%v}`, field, stream))
					require.Equal(t, tt.status, w.Code, "%v", tt.err)
					got := errorOf(t, w)
					require.Equal(t, tt.code, value(got.Code))
					require.NotContains(t, got.Message, "secret")
				}
			}
		}
	}
}

// TestInterleavedChoices checks the index, role and finish reason of n choices in
// one stream.
func TestInterleavedChoices(t *testing.T) {
	e := &fakeEngine{script: func(i int, r engine.Request) ([]act, error) {
		return answerActs(3, fmt.Sprint("a", i), fmt.Sprint("b", i)), nil
	}}
	w := call(New(testConfig(e)), "POST", "/v1/chat/completions", `{`+user+`,"n":4,"stream":true,"stream_options":{"include_usage":true}}`)
	require.Equal(t, 200, w.Code)
	texts, roles, ends := map[int]string{}, map[int]int{}, map[int]int{}
	var total *usage
	for _, c := range chunks(t, w.Body.String()) {
		for _, choice := range c.Choices {
			if choice.Delta.Role != "" {
				require.Empty(t, texts[choice.Index], "the role comes first")
				roles[choice.Index]++
			}
			require.Zero(t, ends[choice.Index], "nothing follows the end")
			texts[choice.Index] += choice.Delta.Content
			if choice.FinishReason != "" {
				ends[choice.Index]++
			}
		}
		if c.Usage != nil {
			require.Empty(t, c.Choices)
			total = c.Usage
		}
	}
	for i := range 4 {
		require.Equal(t, fmt.Sprintf("a%db%d", i, i), texts[i])
		require.Equal(t, 1, roles[i])
		require.Equal(t, 1, ends[i])
	}
	require.Equal(t, 3, total.PromptTokens, "a prompt counts once")
	require.Equal(t, 4*5, total.CompletionTokens)
	require.Equal(t, 23, total.TotalTokens)
}

// TestDeadClient checks that the stream of a client that does not read ends after
// the write timeout. The connection has no buffer: the first write blocks.
func TestDeadClient(t *testing.T) {
	e := stuck(answerActs(3, "Hel")[0])
	script, submitted := e.script, make(chan struct{})
	e.script = func(i int, r engine.Request) ([]act, error) {
		close(submitted)
		return script(i, r)
	}
	c := testConfig(e)
	c.WriteTimeout = time.Millisecond
	s, client, served := servePipe(t, New(c))
	body := `{` + user + `,"stream":true}`
	_, err := fmt.Fprintf(client, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	<-submitted
	// No client reads. The handler must return by itself, because this shutdown waits for
	// it and cancels nothing.
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, <-served)
	<-e.streams[0].closed
}

// deadlineRecorder records the order of deadlines and writes.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	calls []string
}

func (d *deadlineRecorder) SetWriteDeadline(time.Time) error {
	d.calls = append(d.calls, "deadline")
	return nil
}

func (d *deadlineRecorder) Write(b []byte) (int, error) {
	d.calls = append(d.calls, "write")
	return d.ResponseRecorder.Write(b)
}

// TestEachWriteHasADeadline covers a stream and a response that is not one.
func TestEachWriteHasADeadline(t *testing.T) {
	for _, stream := range []bool{false, true} {
		d := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{%s,"stream":%v}`, user, stream)))
		r.Header.Set("Content-Type", "application/json")
		New(testConfig(answering("a", "b"))).ServeHTTP(d, r)
		require.Equal(t, 200, d.Code)
		require.Contains(t, d.calls, "write")
		for i, c := range d.calls {
			if c == "write" {
				require.Equal(t, "deadline", d.calls[i-1])
			}
		}
	}
}

// TestASlowReaderGetsItsAnswer: a client that reads slowly gets a long answer whole,
// though it takes many times the write timeout; one that stops reading is cut off after
// the timeout, and a shutdown waits for neither.
func TestASlowReaderGetsItsAnswer(t *testing.T) {
	const piece = 16 << 10
	text := strings.Repeat("ab", 4*piece)
	for _, tt := range []struct {
		name   string
		stream bool
		pieces int // pieces that the client reads before it stops; 0: all
		forced bool
	}{{"whole", false, 0, false}, {"whole stream", true, 0, false}, {"stops", false, 3, false}, {"stream stops", true, 3, false}, {"shutdown", false, 0, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testConfig(answering(text))
				c.WriteTimeout = 30 * time.Second
				s, client, served := servePipe(t, New(c))
				body := fmt.Sprintf(`{%s,"stream":%v}`, user, tt.stream)
				_, err := fmt.Fprintf(client, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				synctest.Wait()                          // for the request
				go func() { ended <- s.Shutdown(ctx) }() // waits for the answer
				var got []byte
				buf := make([]byte, piece)
				for n := 1; tt.pieces == 0 || n <= tt.pieces; n++ {
					<-time.After(10 * time.Second) // of the fake time of synctest
					m, err := io.ReadFull(client, buf)
					got = append(got, buf[:m]...)
					if err != nil {
						break
					}
					if tt.forced && n == 3 {
						cancel()
						began := time.Now()
						require.ErrorIs(t, <-ended, context.Canceled)
						require.LessOrEqual(t, time.Since(began), finalWriteTimeout)
						return
					}
				}
				began := time.Now()
				require.NoError(t, <-ended)
				require.NoError(t, <-served)
				if tt.pieces > 0 {
					// The shutdown checks for the end of the connection twice a second.
					require.InDelta(t, c.WriteTimeout.Seconds(), time.Since(began).Seconds(), 1, "in the fake time of synctest")
					return
				}
				require.Contains(t, string(got), "HTTP/1.1 200 ")
				require.Greater(t, len(got), len(text), "%s", got[len(got)-100:])
				end := map[bool]string{false: "}\n", true: "0\r\n\r\n"}[tt.stream]
				require.True(t, bytes.HasSuffix(got, []byte(end)), "the end was sent")
			})
		})
	}
}

// pipeListener is a listener of connections without buffers.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// servePipe serves a handler to a client over a connection without buffers.
func servePipe(t *testing.T, h http.Handler) (s *Server, client net.Conn, served <-chan error) {
	l := newPipeListener()
	s = NewServer(h, ServerOptions{})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	client = l.dial()
	t.Cleanup(func() { _ = client.Close() })
	return s, client, ended
}

func (l *pipeListener) dial() net.Conn {
	a, b := net.Pipe()
	l.conns <- b
	return a
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.done)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
