package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
)

// cancelling is a tokenizer that ends the request when it is first called.
type cancelling struct {
	apitest.Tokenizer
	cancel context.CancelFunc
	calls  *int
}

func (c cancelling) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	*c.calls++
	ids, err := c.Tokenizer.EncodeContext(ctx, text, special)
	c.cancel()
	return ids, err
}

// TestParsingEndsWithTheRequest checks that the server computes nothing more for a
// request when its client disconnects while the body is being processed.
func TestParsingEndsWithTheRequest(t *testing.T) {
	messages := strings.Repeat(`{"role":"system","content":"a"},{"role":"user","content":"b"},`, 500)
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[` + strings.TrimSuffix(messages, ",") + `]}`,
		"/v1/completions":      `{"prompt":["a","b","c"]}`,
	} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			e := answering("ok")
			c := testConfig(e)
			c.Tokenizer = cancelling{cancel: cancel, calls: &calls}
			r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			New(c).ServeHTTP(w, r)
			require.Equal(t, 1, calls)
			require.Empty(t, e.submitted())
			require.Equal(t, 499, w.Code)
		})
	}
}

// TestMessageLimit checks that a conversation has a bounded number of messages.
func TestMessageLimit(t *testing.T) {
	c := testConfig(answering("ok"))
	c.MaxMessages = 3
	h := New(c)
	for n, status := range map[int]int{1: 200, 3: 200, 4: 400, 1000: 400} {
		list := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"a"},`, n), ",")
		w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[%s]}`, list))
		require.Equal(t, status, w.Code, n)
		if status == 400 {
			require.Equal(t, "too_many_items", value(errorOf(t, w).Code))
		}
	}
}

// TestBodyMemory checks that the memory for reading a body is a small multiple of its
// size, whatever it contains.
func TestBodyMemory(t *testing.T) {
	h := New(testConfig(answering("ok")))
	const size = 4 << 20
	list := func(item string) string { return "[" + strings.Repeat(item+",", size/(len(item)+1)) + item + "]" }
	object := func() string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, `"%d":0,`, i)
		}
		return "{" + b.String() + `"x":0}`
	}()
	for name, tt := range map[string]struct{ path, body string }{
		"prompt":          {"/v1/completions", `{"prompt":` + list("0") + `}`},
		"prompts":         {"/v1/completions", `{"prompt":` + list(`""`) + `}`},
		"prompts of ids":  {"/v1/completions", `{"prompt":[` + list("0") + `]}`},
		"stop":            {"/v1/chat/completions", `{` + user + `,"stop":` + list(`"a"`) + `}`},
		"tokens":          {"/detokenize", `{"tokens":` + list("0") + `}`},
		"messages":        {"/v1/chat/completions", `{"messages":` + list("{}") + `}`},
		"parts":           {"/v1/chat/completions", `{"messages":[{"role":"user","content":` + list(`{}`) + `}]}`},
		"members":         {"/v1/chat/completions", object},
		"message members": {"/v1/chat/completions", `{"messages":[` + object + `]}`},
		"logit_bias":      {"/v1/chat/completions", `{` + user + `,"logit_bias":` + object + `}`},
		"tools":           {"/v1/chat/completions", `{` + user + `,"tools":` + list("0") + `}`},
		"tool_calls":      {"/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":` + list("0") + `}]}`},
		"text":            {"/v1/completions", `{"prompt":"` + strings.Repeat("a", size) + `"}`},
		"message":         {"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + strings.Repeat("a", size) + `"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w := call(h, "POST", tt.path, tt.body)
			runtime.ReadMemStats(&after)
			require.Equal(t, 400, w.Code)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*len(tt.body)), "reading a body grows its buffer, which is most of this")
		})
	}
}

// TestBodyBudget checks that the bytes of all bodies are bounded: a request beyond the
// bound is a 429. The bytes are free again once a body has become a request for the
// engine, though the answer still runs.
func TestBodyBudget(t *testing.T) {
	gate := make(chan struct{})
	e := &fakeEngine{script: func(i int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), "ok")
		if i == 0 {
			acts[0].wait = gate
		}
		return acts, nil
	}}
	c := testConfig(e)
	c.MaxBody, c.BodyBudget = 1<<20, 1<<20
	s := newServer(c)
	h := s.handler()
	body := func(n int) string { return `{` + user + `,"user":"` + strings.Repeat("a", n) + `"}` }
	send := func(r io.Reader) <-chan *httptest.ResponseRecorder {
		done := make(chan *httptest.ResponseRecorder, 1)
		request := httptest.NewRequest("POST", "/v1/chat/completions", r)
		request.Header.Set("Content-Type", "application/json")
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request)
			done <- w
		}()
		return done
	}
	// A body of unknown length that has arrived in part.
	in, out := io.Pipe()
	slow := send(in)
	big := body(700 << 10)
	_, err := io.WriteString(out, big[:len(big)-1])
	require.NoError(t, err)
	require.Eventually(t, func() bool { used, _ := s.bodies.usage(); return used >= 700<<10 }, 10*time.Second, time.Millisecond)

	refuse := func(r io.Reader) {
		var w *httptest.ResponseRecorder
		select {
		case w = <-send(r):
		case <-time.After(time.Minute):
			require.Fail(t, "the body was accepted, and the request waits")
		}
		require.Equal(t, 429, w.Code, w.Body)
		require.Equal(t, "server_busy", value(errorOf(t, w).Code))
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
	announced := strings.NewReader(big)
	refuse(announced)
	require.Equal(t, len(big), announced.Len(), "a body whose length is announced is refused unread")
	refuse(struct{ io.Reader }{strings.NewReader(big)}) // of unknown length
	// The whole body has come; the engine works on the answer.
	_, err = io.WriteString(out, "}")
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.Eventually(t, func() bool { used, _ := s.bodies.usage(); return used == 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 200, (<-send(strings.NewReader(big))).Code)
	close(gate)
	require.Equal(t, 200, (<-slow).Code)

	for _, wrong := range []string{`{"prompt":1}`, `{`, `[]`, strings.Repeat(" ", 2<<20)} {
		<-send(strings.NewReader(wrong))
	}
	used, refused := s.bodies.usage()
	require.Zero(t, used, "every way out of a request gives its bytes back")
	require.Equal(t, uint64(2), refused)
}

// waitingTokenizer encodes nothing until its gate opens.
type waitingTokenizer struct {
	Tokenizer
	began chan struct{}
	gate  chan struct{}
}

func (w waitingTokenizer) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	w.began <- struct{}{}
	<-w.gate
	return w.Tokenizer.EncodeContext(ctx, text, special)
}

// TestTextsAreAdmitted checks that requests to /tokenize and /detokenize have a bounded
// number of places, that a request without one is refused like others, and that every way
// out gives the place back.
func TestTextsAreAdmitted(t *testing.T) {
	c := testConfig(answering("ok"))
	w := waitingTokenizer{c.Tokenizer, make(chan struct{}), make(chan struct{})}
	c.Tokenizer, c.MaxTexts = w, 2
	s := newServer(c)
	h := s.handler()
	var under sync.WaitGroup
	for range 2 {
		under.Go(func() {
			if w := call(h, "POST", "/tokenize", `{"text":"Hi"}`); w.Code != 200 {
				t.Errorf("%d", w.Code)
			}
		})
		<-w.began
	}
	for path, body := range map[string]string{"/tokenize": `{"text":"Hi"}`, "/detokenize": `{"tokens":[72]}`} {
		w := call(h, "POST", path, body)
		require.Equal(t, 429, w.Code, path)
		require.Equal(t, "server_busy", value(errorOf(t, w).Code))
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
	require.Equal(t, 200, call(h, "POST", "/v1/completions", `{"prompt":[72]}`).Code, "the engine has places of its own")
	text := call(h, "GET", "/metrics", "").Body.String()
	require.Contains(t, text, "\nringmaster_http_texts_in_flight 2\n")
	require.Contains(t, text, "\nringmaster_http_texts_refused_total 2\n")
	close(w.gate)
	under.Wait()
	for _, body := range []string{`{"tokens":[72]}`, `{"tokens":[1e9]}`, `{"tokens":7}`, `{}`} {
		call(h, "POST", "/detokenize", body)
	}
	used, _ := s.texts.usage()
	require.Zero(t, used)
}

// counting counts the texts that it tokenizes.
type counting struct {
	apitest.Tokenizer
	texts *atomic.Int64
}

func (t counting) EncodeContext(ctx context.Context, text string, special bool) ([]int32, error) {
	t.texts.Add(1)
	return t.Tokenizer.EncodeContext(ctx, text, special)
}

// TestABusyServerDoesNoWork: a request without a place is refused before its conversation
// is rendered or its prompts are tokenized, even if it would be a 400.
func TestABusyServerDoesNoWork(t *testing.T) {
	e := answering("ok")
	e.busy = fmt.Errorf("%w: 2 requests run and 4 wait", engine.ErrBusy)
	c := testConfig(e)
	texts := &atomic.Int64{}
	c.Tokenizer = counting{texts: texts}
	h := New(c)
	texts.Store(0)
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"a"}],"n":"many"}`,
		"/v1/completions":      `{"prompt":["a","b"]}`,
	} {
		w := call(h, http.MethodPost, path, body)
		require.Equal(t, http.StatusTooManyRequests, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "server_busy")
		require.NotEmpty(t, w.Header().Get("Retry-After"))
	}
	require.Zero(t, texts.Load())
	e.busy = nil
	require.Equal(t, http.StatusOK, call(h, http.MethodPost, "/v1/completions", `{"prompt":["a","b"]}`).Code)
	require.EqualValues(t, 2, texts.Load())
}
