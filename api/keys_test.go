package api

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/keys"
	"ringmaster/internal/testenv"
)

// ringOf makes a ring of keys without names.
func ringOf(t *testing.T, given ...string) *keys.Ring {
	t.Helper()
	r, err := keys.Open(keys.Options{Given: given})
	require.NoError(t, err)
	return r
}

// keyFile is a file of keys that a test writes, and its clock.
type keyFile struct {
	t     *testing.T
	path  string
	clock *handClock
}

func newKeyFile(t *testing.T, list ...keys.Key) *keyFile {
	f := &keyFile{t, filepath.Join(t.TempDir(), "keys"), &handClock{now: time.Unix(1_700_000_000, 0)}}
	f.write(list...)
	return f
}

func (f *keyFile) write(list ...keys.Key) {
	f.t.Helper()
	text := ""
	for _, k := range list {
		text += k.Line()
	}
	f.text(text)
}

func (f *keyFile) text(text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path, []byte(text), 0o600))
	f.clock.add(time.Second)
}

func (f *keyFile) ring() *keys.Ring {
	f.t.Helper()
	r, err := keys.Open(keys.Options{File: f.path, Now: f.clock.Now, Log: slog.New(slog.DiscardHandler)})
	require.NoError(f.t, err)
	return r
}

// generations are bodies for the endpoints that generate text.
var generations = map[string]string{
	"/v1/chat/completions": `{"messages":[{"role":"user","content":"Hi"}]}`, "/v1/completions": `{"prompt":"Hi"}`, "/v1/responses": `{"input":"Hi"}`,
	"/v1/messages": `{"max_tokens":5,"messages":[{"role":"user","content":"Hi"}]}`, "/api/chat": `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"stream":false}`,
}

// TestLimitsOfKeys: each API refuses a request beyond a limit of its key in its own
// form, with the time to wait; other keys are not affected.
func TestLimitsOfKeys(t *testing.T) {
	paths := map[string]func(t *testing.T, body map[string]any){
		"/v1/chat/completions": openAIRateLimit, "/v1/completions": openAIRateLimit, "/v1/responses": openAIRateLimit,
		"/v1/messages": func(t *testing.T, body map[string]any) {
			require.Equal(t, "error", body["type"])
			require.Equal(t, "rate_limit_error", body["error"].(map[string]any)["type"])
		},
		"/api/chat": func(t *testing.T, body map[string]any) { require.Contains(t, body["error"], "is used up") },
	}
	for path, check := range paths {
		t.Run(path, func(t *testing.T) {
			f := newKeyFile(t, keys.Key{Name: "one", Hash: keys.Hash("1"), Requests: keys.Limit{N: 2, Per: time.Minute}},
				keys.Key{Name: "two", Hash: keys.Hash("2")})
			c := testConfig(answering("a", "b"))
			c.Keys, c.Clock = f.ring(), f.clock
			h := New(c)
			post := func(key string) (int, map[string]any, string) {
				w := call(h, "POST", path, generations[path], "Authorization", "Bearer "+key)
				body := testenv.FromJSON[map[string]any](t, w.Body.Bytes())
				return w.Code, body, w.Header().Get("Retry-After")
			}
			for range 2 {
				code, body, _ := post("1")
				require.Equal(t, 200, code, body)
			}
			code, body, after := post("1")
			require.Equal(t, 429, code)
			require.Equal(t, "30", after)
			check(t, body)
			require.Equal(t, 200, call(h, "GET", "/v1/models", "", "Authorization", "Bearer 1").Code, "what costs nothing is not counted")
			code, _, _ = post("2")
			require.Equal(t, 200, code)
			f.clock.add(30 * time.Second)
			code, _, _ = post("1")
			require.Equal(t, 200, code)
			require.Contains(t, call(h, "GET", "/metrics", "", "Authorization", "Bearer 1").Body.String(), "ringmaster_http_rate_limited_total 1\n")

			code, body, _ = post("0")
			require.Equal(t, 401, code)
			require.Contains(t, body, "error")
		})
	}
}

func openAIRateLimit(t *testing.T, body map[string]any) {
	e := body["error"].(map[string]any)
	require.Equal(t, "rate_limit_error", e["type"])
	require.Equal(t, "rate_limit_exceeded", e["code"])
	require.Contains(t, e["message"], "2/minute requests, is used up; try again in 30s")
}

// TestTokenLimits: the tokens of prompts count when a request begins, those of
// answers when it ends; nothing is tokenized for a key that has none left.
func TestTokenLimits(t *testing.T) {
	f := newKeyFile(t, keys.Key{Name: "one", Hash: keys.Hash("1"), Tokens: keys.Limit{N: 86_400, Per: 24 * time.Hour}})
	c := testConfig(answering("a", "b"))
	c.Keys, c.Clock = f.ring(), f.clock
	h := New(c)
	holder := c.Keys.Find("1")
	holder.Use(f.clock.Now(), 86_399)
	auth := []string{"Authorization", "Bearer 1"}
	w := call(h, "POST", "/v1/completions", `{"prompt":"Hi","max_tokens":5}`, auth...)
	require.Equal(t, 200, w.Code, "one token is left")
	reply := testenv.FromJSON[struct{ Usage usage }](t, w.Body.Bytes())
	require.Positive(t, reply.Usage.PromptTokens)
	require.Positive(t, reply.Usage.CompletionTokens)
	owed := len(submittedPrompt(t, c)) + reply.Usage.CompletionTokens
	w = call(h, "POST", "/v1/completions", `{"prompt":7}`, auth...)
	require.Equal(t, 429, w.Code, "before the request is parsed")
	require.InDelta(t, float64(owed), holder.Wait(f.clock.Now()).Seconds(), 1e-6, "a token comes back in a second; one is needed")
	require.Equal(t, "86400/day tokens", strings.Split(errorOf(t, w).Message, ", ")[1])
	f.clock.add(time.Duration(owed+1) * time.Second)
	require.Equal(t, 200, call(h, "POST", "/v1/completions", `{"prompt":"Hi","max_tokens":5}`, auth...).Code)
}

func submittedPrompt(t *testing.T, c Config) []int32 {
	t.Helper()
	list := c.Engine.(*fakeEngine).submitted()
	require.NotEmpty(t, list)
	return list[0].Prompt
}

// TestKeysFollowTheirFile: revoked, added and expired keys.
func TestKeysFollowTheirFile(t *testing.T) {
	one, two := keys.Key{Name: "one", Hash: keys.Hash("1")}, keys.Key{Name: "two", Hash: keys.Hash("2")}
	f := newKeyFile(t, one)
	c := testConfig(answering("ok"))
	c.Keys, c.Clock = f.ring(), f.clock
	h := New(c)
	status := func(key string) int {
		return call(h, "GET", "/v1/models", "", "Authorization", "Bearer "+key).Code
	}
	require.Equal(t, 200, status("1"))
	require.Equal(t, 401, status("2"))
	two.Expires = f.clock.Now().Add(time.Hour)
	f.write(two)
	require.Equal(t, 401, status("1"))
	require.Equal(t, 200, status("2"))
	f.text(strings.TrimSpace(two.Line()) + " request=1/minute\nthree rm-key\n")
	require.Equal(t, 200, status("2"), "its hash is still in the file")
	w := call(h, "GET", "/metrics", "", "Authorization", "Bearer 2")
	require.Contains(t, w.Body.String(), `ringmaster_config_last_reload_successful{config="keys"} 0`)
	f.clock.add(time.Hour)
	w = call(h, "GET", "/v1/models", "", "Authorization", "Bearer 2")
	require.Equal(t, 401, w.Code)
	require.Equal(t, "The API key has expired.", errorOf(t, w).Message)
	f.write(one)
	require.Equal(t, 200, status("1"))
	for _, last := range []string{"# no one\n", "", "one rm-key\n"} {
		f.text(last)
		require.Equal(t, 401, status("1"), "%q", last)
		f.write(one)
		require.Equal(t, 200, status("1"))
	}
}

// TestAudit: a line for each request says who used what, without texts.
func TestAudit(t *testing.T) {
	f := newKeyFile(t, keys.Key{Name: "alice", Hash: keys.Hash("rm-a"), Requests: keys.Limit{N: 1, Per: time.Hour}})
	c := testConfig(answering("private answer"))
	c.Keys, c.Clock, c.StrictModelNames = f.ring(), f.clock, false
	var audit, log bytes.Buffer
	c.Audit, c.Log = slog.New(slog.NewJSONHandler(&audit, nil)), slog.New(slog.NewJSONHandler(&log, nil))
	h := New(c)
	body := `{"model":"private model","messages":[{"role":"user","content":"private prompt"}]}`
	for _, key := range []string{"rm-a", "rm-a", "rm-stolen"} {
		call(h, "POST", "/v1/chat/completions", body, "Authorization", "Bearer "+key)
	}
	call(h, "GET", "/healthz", "")
	lines := strings.Split(strings.TrimSpace(audit.String()), "\n")
	require.Len(t, lines, 3)
	var got []map[string]any
	for _, l := range lines {
		m := testenv.FromJSON[map[string]any](t, l)
		require.Contains(t, m["id"], "req_")
		delete(m, "id")
		delete(m, "time")
		delete(m, "client")
		got = append(got, m)
	}
	prompt := float64(len(submittedPrompt(t, c)))
	require.Equal(t, 200.0, got[0]["status"])
	require.Equal(t, c.Model.ID, got[0]["model"])
	require.Contains(t, got[0], "prompt_tokens")
	require.Positive(t, prompt)
	require.Positive(t, got[0]["completion_tokens"])
	refused := func(key string, status float64) map[string]any {
		return map[string]any{"level": "INFO", "msg": "used", "key": key, "method": "POST", "route": "/v1/chat/completions", "status": status, "seconds": 0.0}
	}
	require.Equal(t, refused("alice", 429), got[1])
	require.Equal(t, refused("", 401), got[2])
	require.Contains(t, log.String(), `"key":"alice","model":"`+c.Model.ID+`"`)
	for _, text := range []string{"private", "rm-a", "rm-stolen"} {
		require.NotContains(t, audit.String()+log.String(), text)
	}
}

// TestClientRequestID: the id of a client or proxy is logged beside the server's own, if it
// is an id.
func TestClientRequestID(t *testing.T) {
	for _, tc := range []struct{ header, id, want string }{
		{"X-Request-Id", "f058ebd6-02f7:a_", "f058ebd6-02f7:a_"},
		{"X-Request-Id", "F058ebd6-02f7.4d3f:1", "F058ebd6-02f7.4d3f:1"},
		{"X-Client-Request-Id", "mine-1", "mine-1"},
		{"X-Request-Id", strings.Repeat("x", longestClientID), strings.Repeat("x", longestClientID)},
		{"X-Request-Id", strings.Repeat("x", longestClientID+1), ""},
		{"X-Request-Id", "two words", ""},
		{"X-Request-Id", "l\u00edne", ""},
		{"X-Request-Id", `quote"`, ""},
	} {
		var log, audit bytes.Buffer
		c := testConfig(answering("x"))
		c.Log, c.Audit = slog.New(slog.NewJSONHandler(&log, nil)), slog.New(slog.NewJSONHandler(&audit, nil))
		w := call(New(c), "GET", "/v1/models", "", tc.header, tc.id)
		for _, text := range []string{log.String(), audit.String()} {
			if tc.want == "" {
				require.NotContains(t, text, "client_request_id", tc.id)
			} else {
				require.Contains(t, text, `"client_request_id":"`+tc.want+`"`)
			}
		}
		require.Contains(t, w.Header().Get("X-Request-Id"), "req_", "the answer has the server's own")
	}
}
