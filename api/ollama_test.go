package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/api/internal/ollama"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
	"ringmaster/model/chat"
)

// ollamaFile describes the file of the model in the transcripts.
var ollamaFile = dialect.File{
	Architecture: "deepseek4", Parameters: 7_612_345, Bytes: 24_000_000, Digest: strings.Repeat("ab", 32), Quantization: "Q4_K",
	Metadata: map[string]any{"deepseek4.context_length": int64(65536), "deepseek4.block_count": int64(4), "general.name": "Tiny"},
}

func TestOllamaTranscripts(t *testing.T) {
	hello := func() *fakeEngine { return answering("Hel", "lo") }
	plain := `,"think":false`
	for _, tt := range []transcript{
		{"ollama-chat", hello(), "POST /api/chat", `{"model":"tiny",` + user + plain + `,"stream":false}`},
		{"ollama-chat-stream", hello(), "POST /api/chat", `{"model":"tiny:latest",` + user + plain + `}`},
		{"ollama-chat-thinking", answering("Hm", ".</think>", "Yes"), "POST /api/chat", `{` + user + `,"stream":false}`},
		{"ollama-chat-thinking-stream", answering("Hm", ".</think>", "Yes"), "POST /api/chat", `{` + user + `,"think":"high","options":{"num_ctx":4096,"mirostat":2}}`},
		{"ollama-chat-tools", calls(), "POST /api/chat", `{` + user + plain + tools + `,"stream":false}`},
		{"ollama-chat-tools-stream", calls(), "POST /api/chat", `{` + user + plain + tools + `}`},
		{"ollama-chat-tools-cut", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /api/chat", `{` + user + plain + tools + `,"stream":false}`},
		{"ollama-chat-tools-cut-stream", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /api/chat", `{` + user + plain + tools + `}`},
		{"ollama-chat-logprobs", answering("A€"), "POST /api/chat", `{` + user + plain + `,"logprobs":true,"top_logprobs":2,"stream":false}`},
		{"ollama-chat-load", hello(), "POST /api/chat", `{"model":"tiny","keep_alive":-1}`},
		{"ollama-generate", hello(), "POST /api/generate", `{"prompt":"Hi","system":"Be brief."` + plain + `,"stream":false}`},
		{"ollama-generate-stream", answering("Hm</think>", "Yes"), "POST /api/generate", `{"prompt":"Hi"}`},
		{"ollama-generate-raw", hello(), "POST /api/generate", `{"prompt":"Once","raw":true,"logprobs":true}`},
		{"ollama-generate-load", hello(), "POST /api/generate", `{"prompt":""}`},
		{"ollama-tags", hello(), "GET /api/tags", ""},
		{"ollama-ps", hello(), "GET /api/ps", ""},
		{"ollama-show", hello(), "POST /api/show", `{"model":"tiny","verbose":true}`},
		{"ollama-show-unknown", hello(), "POST /api/show", `{"name":"llama3"}`},
		{"ollama-version", hello(), "GET /api/version", ""},
		{"ollama-busy", rejecting(engine.ErrBusy), "POST /api/chat", `{` + user + `}`},
		{"ollama-bad-option", hello(), "POST /api/chat", `{` + user + `,"options":{"temperature":"hot"}}`},
		{"ollama-failed-in-stream", breaks(fmt.Errorf("%w: layer 3", engine.ErrFailed)), "POST /api/chat", `{` + user + plain + `}`},
		{"ollama-no-such-path", hello(), "GET /api/nothing", ""},
		{"ollama-wrong-method", hello(), "GET /api/chat", ""},
		{"ollama-pull", hello(), "POST /api/pull", `{"model":"llama3"}`},
		{"ollama-embed", hello(), "POST /api/embed", `{"model":"tiny","input":"x"}`},
	} {
		tt.check(t, func(c *Config) { c.Model.File = ollamaFile })
	}
}

// A HEAD of the root shows that a server runs; it needs no key.
func TestOllamaHead(t *testing.T) {
	c := testConfig(answering("never"))
	c.APIKeys = []string{"k"}
	h := New(c)
	require.Equal(t, 200, call(h, "HEAD", "/", "").Code)
	require.Equal(t, 401, call(h, "HEAD", "/api/tags", "").Code)
	for _, path := range []string{"/api/tags", "/api/version"} {
		require.Equal(t, 200, call(h, "HEAD", path, "", "Authorization", "Bearer k").Code, path)
	}
}

// The version is that of the module with Ollama's own client, because the dialect is
// tested against it.
func TestOllamaVersion(t *testing.T) {
	mod := testenv.ReadFile(t, "../go.mod")
	require.Contains(t, string(mod), "\tgithub.com/ollama/ollama v"+ollama.Version+"\n")
}

// A conversation with calls and results becomes the same prompt as in other dialects:
// arguments are objects, results find their calls by id, by name, or by their order.
func TestOllamaConversation(t *testing.T) {
	two := `{"role":"assistant","thinking":"Hm.","content":"","tool_calls":[{"id":"a","function":{"index":0,"name":"weather","arguments":{"place":"Paris"}}},{"id":"b","function":{"name":"time","arguments":{}}}]}`
	want := "<tool_result>22</tool_result>\n\n<tool_result>noon</tool_result>"
	for _, results := range []string{
		`{"role":"tool","tool_call_id":"b","content":"noon"},{"role":"tool","tool_call_id":"a","content":"22"}`,
		`{"role":"tool","tool_name":"time","content":"noon"},{"role":"tool","tool_name":"weather","content":"22"}`,
		`{"role":"TOOL","content":"22"},{"role":"tool","content":"noon"}`,
		`{"role":"tool","tool_name":"time","content":"noon"},{"role":"tool","content":"22"}`,
	} {
		for _, calls := range []string{two, strings.NewReplacer(`"id":"a",`, "", `"id":"b",`, "").Replace(two)} {
			if strings.Contains(results, "call_id") && !strings.Contains(calls, `"id"`) {
				continue
			}
			e := answering("ok")
			body := `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"Q"},` + calls + `,` + results + `],"think":true` + tools + `,"stream":false}`
			w := call(New(testConfig(e)), "POST", "/api/chat", body)
			require.Equal(t, 200, w.Code, w.Body)
			prompt := withControls(e.submitted()[0].Prompt)
			require.Contains(t, prompt, want, body)
			require.Contains(t, prompt, `name="place" string="true">Paris`)
			require.True(t, strings.HasSuffix(prompt, "<｜Assistant｜><think>"), prompt)
		}
	}
}

// The fields and options reach the engine.
func TestOllamaOptions(t *testing.T) {
	e := answering("ok")
	h := New(testConfig(e))
	send := func(path, body string) engine.Request {
		t.Helper()
		w := call(h, "POST", path, body)
		require.Equal(t, 200, w.Code, w.Body)
		return e.last()
	}
	r := send("/api/chat", `{`+user+`,"options":{"num_predict":7,"stop":["x","y"],"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":42,"presence_penalty":1,"frequency_penalty":-1,"repeat_penalty":1.1,"anything":[]}}`)
	require.Equal(t, 7, r.MaxTokens)
	require.Equal(t, []string{"x", "y"}, r.Stop)
	seed := uint64(42)
	require.Equal(t, engine.Sampling{Temperature: 0.5, TopP: 0.9, TopK: 40, MinP: 0.1, Seed: &seed, PresencePenalty: 1, FrequencyPenalty: -1}, r.Sampling)
	r = send("/api/chat", `{`+user+`,"options":{"num_predict":-1,"seed":-1},"top_logprobs":3}`)
	require.Zero(t, r.MaxTokens)
	require.Zero(t, r.TopLogprobs)
	require.Equal(t, engine.Sampling{Temperature: 1, TopP: 1}, r.Sampling)
	require.Nil(t, r.Constraint)
	for think, end := range map[string]string{"": "<think>", `,"think":true`: "<think>", `,"think":false`: "</think>", `,"think":"low"`: "<think>", `,"think":"none"`: "</think>"} {
		require.True(t, strings.HasSuffix(withControls(send("/api/chat", `{`+user+think+`}`).Prompt), "<｜Assistant｜>"+end), think)
		require.True(t, strings.HasSuffix(withControls(send("/api/generate", `{"prompt":"Hi"`+think+`}`).Prompt), "<｜User｜>Hi<｜Assistant｜>"+end), think)
	}
	for _, format := range []string{`"json"`, `{"type":"object","properties":{"a":{"type":"integer"}}}`} {
		require.NotNil(t, send("/api/chat", `{`+user+`,"format":`+format+`}`).Constraint)
		require.NotNil(t, send("/api/generate", `{"prompt":"Hi","format":`+format+`}`).Constraint)
		require.NotNil(t, send("/api/generate", `{"prompt":"Hi","raw":true,"format":`+format+`}`).Constraint)
	}
	require.Nil(t, send("/api/chat", `{`+user+`,"format":""}`).Constraint)
	// The answer continues a last message of the assistant.
	prompt := withControls(send("/api/chat", `{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],"think":false}`).Prompt)
	require.True(t, strings.HasSuffix(prompt, "<｜Assistant｜></think>A"), prompt)
	prompt = withControls(send("/api/generate", `{"prompt":"<｜User｜>Q","raw":true}`).Prompt)
	require.Equal(t, "<｜begin▁of▁sentence｜><｜User｜>Q", prompt)
}

func TestOllamaInvalid(t *testing.T) {
	e := answering("never")
	h := New(testConfig(e))
	c := testConfig(e)
	c.Model.Format = func() *chat.Format { f, _ := chat.Named("plain"); return f }()
	silent := New(c)
	for _, tt := range []struct {
		h          http.Handler
		path, body string
		names      string // in the message
	}{
		{h, "/api/chat", `{"model":"llama3",` + user + `}`, "llama3"}, {h, "/api/chat", `{"messages":5}`, "messages"}, {h, "/api/chat", `{"messages":[{"content":"x"}]}`, "messages[0].role"},
		{h, "/api/chat", `{"messages":[{"role":"robot","content":"x"}]}`, "messages[0].role"}, {h, "/api/chat", `{"messages":[{"role":"user","content":"x","images":["QUJD"]}]}`, "images"},
		{h, "/api/chat", `{"messages":[{"role":"user","content":["x"]}]}`, "messages[0].content"}, {h, "/api/chat", `{` + user + `,"think":"very"}`, "think"}, {h, "/api/chat", `{` + user + `,"think":5}`, "think"},
		{silent, "/api/chat", `{` + user + `,"think":true}`, "think"}, {h, "/api/chat", `{` + user + `,"format":"xml"}`, "format"}, {h, "/api/chat", `{` + user + `,"format":{"not":{}}}`, "format"},
		{h, "/api/chat", `{` + user + `,"options":{"repeat_penalty":1.3}}`, "options.repeat_penalty"}, {h, "/api/chat", `{` + user + `,"options":{"stop":[""]}}`, "options.stop"}, {h, "/api/chat", `{` + user + `,"options":[]}`, "options"},
		{h, "/api/chat", `{` + user + `,"top_logprobs":21}`, "top_logprobs"}, {h, "/api/chat", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"x"}]}`, "function.arguments"},
		{h, "/api/chat", `{"messages":[{"role":"tool","content":"x"}]}`, "messages[0].role"},
		{h, "/api/generate", `{"prompt":"x","suffix":"y"}`, "suffix"}, {h, "/api/generate", `{"prompt":"x","context":[1]}`, "context"}, {h, "/api/generate", `{"prompt":"x","raw":true,"system":"y"}`, "system"},
		{h, "/api/generate", `{"prompt":["x"]}`, "prompt"}, {h, "/api/generate", `{"prompt":"x","template":"y"}`, "template"}, {h, "/api/generate", `{"prompt":"x","images":["QUJD"]}`, "images"}, {h, "/api/show", `{"model":"x"}`, "x"},
	} {
		w := call(tt.h, "POST", tt.path, tt.body)
		require.Contains(t, []int{400, 404}, w.Code, "%s: %s", tt.body, w.Body)
		require.Contains(t, ollamaError(t, w.Body.String()), tt.names, tt.body)
	}
	require.Empty(t, e.submitted())
}

// ollamaError returns the text of an error and checks that the body has nothing else.
func ollamaError(t *testing.T, body string) string {
	t.Helper()
	e := testenv.FromJSON[map[string]string](t, body)
	require.Len(t, e, 1)
	require.NotEmpty(t, e["error"])
	return e["error"]
}

// risingClock is a clock that advances by a second at each call.
type risingClock struct {
	fakeClock
	mu    sync.Mutex
	looks int
}

func (c *risingClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return c.fakeClock.Now().Add(time.Duration(c.looks) * time.Second)
}

// The durations are parts of the whole, in nanoseconds, and greater than zero.
func TestOllamaDurations(t *testing.T) {
	c := testConfig(answering("a", "b"))
	c.Clock = &risingClock{}
	w := call(New(c), "POST", "/api/chat", `{`+user+`,"think":false,"stream":false}`)
	var got struct {
		Total  time.Duration `json:"total_duration"`
		Prompt time.Duration `json:"prompt_eval_duration"`
		Answer time.Duration `json:"eval_duration"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
	require.GreaterOrEqual(t, got.Prompt, time.Second)
	require.GreaterOrEqual(t, got.Answer, time.Second)
	require.Equal(t, got.Total, got.Prompt+got.Answer)
}

// A silent stream has a line without a text at every tick.
func TestOllamaTicks(t *testing.T) {
	gate := make(chan struct{})
	for path, body := range map[string]string{"/api/chat": `{` + user + `,"think":false}`, "/api/generate": `{"prompt":"Hi","think":false}`} {
		clock, answer := silentStream(t, gated(gate), path, body)
		clock.ticks <- time.Time{}
		lines := <-answer
		next := func() (text string, end bool) {
			require.True(t, lines.Scan())
			var v struct {
				Message  struct{ Content string }
				Response string
				Done     bool
			}
			require.NoError(t, json.Unmarshal(lines.Bytes(), &v), lines.Text())
			return v.Message.Content + v.Response, v.Done
		}
		for range 3 {
			text, end := next()
			require.Equal(t, "", text)
			require.False(t, end)
			clock.ticks <- time.Time{}
		}
		text, _ := next() // of the last tick
		require.Empty(t, text)
		gate <- struct{}{}
		text, _ = next()
		require.Equal(t, "Hi", text)
		text, end := next()
		require.Empty(t, text)
		require.True(t, end)
		require.False(t, lines.Scan())
	}
}

// Answers with calls come back with the very tokens that were sampled.
func TestOllamaReplay(t *testing.T) {
	e := answering("I look.\n\n" + callText)
	h := New(testConfig(e))
	w := call(h, "POST", "/api/chat", `{`+user+tools+`,"think":false,"stream":false}`)
	got := testenv.FromJSON[struct{ Message json.RawMessage }](t, w.Body.Bytes())
	body := `{"messages":[{"role":"user","content":"Hi"},` + string(got.Message) + `,{"role":"tool","content":"1"},{"role":"tool","content":"2"}],"think":false` + tools + `}`
	require.Equal(t, 200, call(h, "POST", "/api/chat", body).Code)
	requests := e.submitted()
	first, second := withControls(requests[0].Prompt), withControls(requests[1].Prompt)
	require.True(t, strings.HasPrefix(second, first+"I look.\n\n"+callText), second)
}

// FuzzOllama checks that any body gets an error or an answer in Ollama's form, and
// that the engine sees only valid requests.
func FuzzOllama(f *testing.F) {
	for _, seed := range []string{
		`{` + user + `}`, `{` + user + tools + `,"stream":false,"format":"json","think":"low"}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"tool","tool_name":"f","content":"x"}]}`,
		`{"prompt":"a","raw":true,"options":{"seed":-1,"num_predict":-2,"stop":["a"],"top_p":0}}`, `{"model":"tiny:latest","prompt":"a","system":"b"}`, `{}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/api/chat", "/api/generate", "/api/show"} {
			w := call(New(testConfig(checked(t))), "POST", path, string(body), "Content-Type", "application/json")
			if w.Code != http.StatusOK {
				require.Contains(t, []int{400, 404}, w.Code)
				ollamaError(t, w.Body.String())
				continue
			}
			for line := range strings.Lines(w.Body.String()) {
				require.True(t, json.Valid([]byte(line)), line)
			}
			if path != "/api/show" {
				require.Contains(t, w.Body.String(), `"done":true`)
			}
		}
	})
}
