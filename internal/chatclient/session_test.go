package chatclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/internal/testenv"
	"ringmaster/internal/usage"
)

// serveReal starts a server with the real API and engine over a model that answers with
// say.
func serveReal(t *testing.T, say func(question string) string, key string) string {
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: func(history []int32) string {
		return say(apitest.Tokenizer{}.Decode(history))
	}})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
	require.NoError(t, err)
	c := api.Config{Engine: api.FromEngine(e), Tokenizer: apitest.Tokenizer{}, Log: slog.New(slog.DiscardHandler),
		Model: api.Model{ID: "scripted", ContextLength: 4096}}
	if key != "" {
		c.APIKeys = []string{key}
	}
	server := httptest.NewServer(api.New(c))
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, e.Close(context.Background()))
	})
	return server.URL
}

// typed are a user's lines; a test may act between them.
type typed struct {
	lines []string
	at    int
}

func (r *typed) ReadLine(context.Context, string) (string, error) {
	if r.at == len(r.lines) {
		return "", io.EOF
	}
	r.at++
	return r.lines[r.at-1], nil
}

func testOptions() Options {
	return Options{Size: func() (int, int) { return 80, 24 }, Now: time.Now}
}

// talk runs a session over lines and returns what it showed.
func talk(t *testing.T, url string, o Options, lines ...string) (string, *Session) {
	t.Helper()
	c, err := NewClient(url+"/v1/", "")
	require.NoError(t, err)
	var out strings.Builder
	s, err := New(t.Context(), c, &out, o)
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context(), &typed{lines: lines}))
	return out.String(), s
}

// TestConversation uses the real API: the second question is sent with the first and its
// answer; reasoning is shown apart from the answer and is not sent back.
func TestConversation(t *testing.T) {
	url := serveReal(t, func(q string) string {
		switch {
		case strings.Contains(q, "second"):
			return fmt.Sprintf("I saw %d questions.", strings.Count(q, "question"))
		case strings.HasSuffix(q, "<think>"):
			return "Let me think.</think>Here."
		}
		return "Hello."
	}, "")
	out, s := talk(t, url, testOptions(), "/system Be brief.", "first question", "second question", "", "/undo", "/think on", `go \`, "on", "/exit", "never read")
	require.Contains(t, out, "scripted at "+url)
	require.Contains(t, out, "Hello.\n")
	require.Contains(t, out, "I saw 2 questions.\n")
	require.Contains(t, out, "[reasoning]\nLet me think.\n[answer]\nHere.\n")
	require.Equal(t, []Message{{"system", "Be brief."}, {"user", "first question"}, {"assistant", "Hello."}, {"user", "go \non"}, {"assistant", "Here."}}, s.messages)

	o := testOptions()
	o.NoReasoning = true
	out, _ = talk(t, url, o, "/think on", "x")
	require.Contains(t, out, "Here.")
	require.NotContains(t, out, "Let me think")
}

// On a terminal the reasoning is dimmed, Markdown is formatted, and a line shows tokens
// and rate.
func TestStyled(t *testing.T) {
	url := serveReal(t, func(q string) string {
		if strings.HasSuffix(q, "<think>") {
			return "Hm.</think>**Bold** and `code`."
		}
		return "no"
	}, "")
	o := testOptions()
	o.Styled, o.Fields = true, map[string]any{"enable_thinking": true}
	out, _ := talk(t, url, o, "x")
	require.Contains(t, out, "\x1b[2mH\x1b[0m\x1b[2mm\x1b[0m")
	require.Contains(t, out, "\x1b[1mBold\x1b[0m and \x1b[36mcode\x1b[0m.\n")
	require.Regexp(t, `\d+ tokens, [\d.]+ tokens/s, first token after [\d.]+ s; prompt of \d+`, out)
}

// TestCommands: what commands print and change; wrong ones are named.
func TestCommands(t *testing.T) {
	url := serveReal(t, func(q string) string { return "seen " + fmt.Sprint(strings.Count(q, "/slash")) }, "")
	file := filepath.Join(t.TempDir(), "talk.json")
	out, s := talk(t, url, testOptions(), "/retry", "/undo", "//slash", "/set temperature 0.5", "/set stop [\"x\"]", "/set user me", "/set user none", "/set a", "/set",
		"/model", "/model other", "/save "+file, "/save "+file, "/load "+file, "/load "+file+".not", "/think maybe", "/reasoning off", "/bogus\x1b[2J", "/help", "/new", "/retry")
	require.Equal(t, 3, strings.Count(out, "there is no question yet"))
	for _, want := range []string{
		"seen 1", `{"stop":["x"],"temperature":0.5}`, "/set a VALUE", "scripted\n",
		"the model is other", "written to " + file, "talk.json exists; name another file", "2 messages",
		"no such file", "/think on or /think off", "there is no command /bogus[2J; /help lists them",
	} {
		require.Contains(t, out, want)
	}
	require.Empty(t, s.messages)
	for _, line := range strings.Split(out, "\n") {
		require.LessOrEqual(t, len(line), 160)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for text, want := range map[string]string{`{`: "not a conversation", `[{"role":"root"}]`: `role "root"`} {
		bad := testenv.WriteFile(t, filepath.Join(t.TempDir(), "bad.json"), text)
		err := s.Load(bad)
		require.ErrorContains(t, err, want)
		require.True(t, usage.Is(err))
	}
}

// script starts a server that answers with the given bodies in turn; an empty one closes
// the connection at once. Requests are appended to asked.
func script(t *testing.T, status int, bodies ...string) (url string, asked *[]map[string]any) {
	asked = new([]map[string]any)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
			return
		}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		*asked = append(*asked, body)
		text := bodies[min(len(*asked), len(bodies))-1]
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
		if !strings.Contains(text, "[DONE]") && status == 200 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

const part = `data: {"choices":[{"delta":{"content":"Half"}}]}` + "\n\n"

// TestBrokenStreams: an answer that breaks off, fails or is nonsense is shown with its
// error, the session continues, and /retry asks the same again.
func TestBrokenStreams(t *testing.T) {
	whole := `data: {"choices":[{"delta":{"content":"Whole"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	for want, broken := range map[string]string{
		"the stream ended before the answer":   part,
		"sent an event that is not JSON":       part + "data: {nonsense\n\n",
		"rank 2 is lost":                       part + `data: {"error":{"message":"rank 2 is lost"}}` + "\n\n",
		"the answer failed":                    `data: {"error":{"code":3}}` + "\n\n",
		"token too long":                       part + "data: " + strings.Repeat("x", maxLine+1),
		"the stream ended before the answer: ": ": keep-alive\n\n",
	} {
		url, asked := script(t, 200, broken, whole)
		out, s := talk(t, url, testOptions(), "q", "/retry")
		require.Contains(t, out, want)
		require.Contains(t, out, "/retry asks again")
		require.Contains(t, out, "Whole")
		require.Equal(t, (*asked)[0]["messages"], (*asked)[1]["messages"], "the half answer is not sent again")
		require.Equal(t, []Message{{"user", "q"}, {"assistant", "Whole"}}, s.messages)
	}
}

// TestRefused: errors of the server name the address and the cure.
func TestRefused(t *testing.T) {
	url := serveReal(t, func(string) string { return "ok" }, "sk-right")
	for _, key := range []string{"", "sk-wrong"} {
		c, err := NewClient(url, key)
		require.NoError(t, err)
		_, err = New(t.Context(), c, io.Discard, testOptions())
		require.ErrorContains(t, err, "--api-key")
		require.True(t, usage.Is(err))
	}
	c, err := NewClient(url, "sk-right")
	require.NoError(t, err)
	var out strings.Builder
	s, err := New(t.Context(), c, &out, testOptions())
	require.NoError(t, err)
	require.NoError(t, s.Once(t.Context(), "x"))
	require.Equal(t, "ok\n", out.String())
	s.o.Fields["temperature"] = -1
	require.ErrorContains(t, s.Once(t.Context(), "x"), "temperature")

	url, _ = script(t, 503, `{"error":{"message":"the model is being\nloaded"}}`)
	shown, _ := talk(t, url, testOptions(), "q")
	require.Contains(t, shown, "the model is being loaded; try again in 7 s")
	for _, url := range []string{"x", "ftp://h", "http://", "127.0.0.1:8080"} {
		_, err := NewClient(url, "")
		require.True(t, usage.Is(err), url)
	}
	_, err = NewClient("http://h", "a\nb")
	require.True(t, usage.Is(err))
	closed := httptest.NewServer(http.NotFoundHandler())
	c, err = NewClient(closed.URL, "")
	require.NoError(t, err)
	_, err = c.Models(t.Context())
	require.ErrorContains(t, err, "is --url the address of an OpenAI-compatible server?")
	closed.Close()
	_, err = c.Models(t.Context())
	require.ErrorContains(t, err, "is the server running")
}

// TestStall: a server that is silent for too long ends the answer, but one that still
// sends comments does not.
func TestStall(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, part)
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	c, err := NewClient(server.URL, "")
	require.NoError(t, err)
	c.Stall = 50 * time.Millisecond
	var got string
	err = c.Stream(t.Context(), Request{}, func(e Event) error { got += e.Text; return nil })
	require.ErrorContains(t, err, "sent nothing for 50ms")
	require.Equal(t, "Half", got)
}

// TestInterrupt: an interrupt ends the answer, at the server too, but not the session; an
// interrupt without an answer has no effect.
func TestInterrupt(t *testing.T) {
	gone := make(chan struct{}, 1)
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
			return
		}
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, part)
		w.(http.Flusher).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer server.Close()
	interrupts := make(chan os.Signal, 1)
	interrupts <- os.Interrupt
	go func() {
		<-asked
		interrupts <- os.Interrupt
	}()
	o := testOptions()
	o.Interrupts = interrupts
	out, s := talk(t, server.URL, o, "q", "/set")
	<-gone
	require.Contains(t, out, "stopped; /retry asks again\n{}\n")
	require.Equal(t, "q", s.messages[0].Content)

	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(io.ErrClosedPipe)
	}()
	s.o.Interrupts = nil
	require.ErrorIs(t, s.Run(ctx, &typed{lines: []string{"q", "again"}}), io.ErrClosedPipe)
	require.ErrorIs(t, s.Once(ctx, "q"), io.ErrClosedPipe)
}

// TestHistory: the file keeps the last lines, without repeats in a row.
func TestHistory(t *testing.T) {
	env := map[string]string{"HOME": "/users/me"}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	require.Equal(t, "/users/me/.local/state/ringmaster/history", HistoryPath(lookup))
	env["XDG_STATE_HOME"] = t.TempDir()
	path := HistoryPath(lookup)
	require.Equal(t, filepath.Join(env["XDG_STATE_HOME"], "ringmaster", "history"), path)
	require.Empty(t, HistoryPath(func(string) (string, bool) { return "", false }))
	h, err := OpenHistory(path)
	require.NoError(t, err)
	for i := range maxHistory + 3 {
		h.Add(fmt.Sprint("line ", i))
	}
	h.Add("last")
	h.Add("last ")
	h.Add(" ")
	require.NoError(t, h.Save())
	h, err = OpenHistory(path)
	require.NoError(t, err)
	require.Equal(t, maxHistory, h.Len())
	require.Equal(t, []string{"last", fmt.Sprint("line ", maxHistory+2)}, []string{h.At(0), h.At(1)})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no file is left behind")
	require.True(t, slices.Contains(h.lines, "last"))
}

// TestRate: the rate below an answer is the server's; without its times, an answer that
// came all at once has none.
func TestRate(t *testing.T) {
	begun := time.Unix(100, 0)
	at := func(d time.Duration) timing { return timing{begun: begun, first: begun, last: begun.Add(d), pieces: 2} }
	line := func(took timing, server *Timings) string {
		took.server = server
		return took.line(&Usage{Prompt: 3, Completion: 11})
	}
	require.Contains(t, line(at(time.Microsecond), &Timings{Predicted: 11, Decode: 400}), "11 tokens, 25.0 tokens/s, first")
	require.Contains(t, line(at(time.Second), &Timings{Predicted: 1}), "11 tokens, first")
	require.Contains(t, line(at(time.Second), nil), "11 tokens, 10.0 tokens/s, first")
	require.Contains(t, line(at(time.Microsecond), nil), "11 tokens, first")
}
