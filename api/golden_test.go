package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/model"
)

// TestTranscripts compares whole responses with golden files, which also document
// the wire format.
func TestTranscripts(t *testing.T) {
	hello := func() *fakeEngine { return answering("Hel", "lo") }
	thinks := func() *fakeEngine { return answering("Let me", " see.</th", "ink>Paris") }
	tests := []transcript{
		{"chat", hello(), "POST /v1/chat/completions", `{` + user + `}`},
		{"chat-stream", hello(), "POST /v1/chat/completions", `{` + user + `,"stream":true}`},
		{"chat-stream-usage", hello(), "POST /v1/chat/completions", `{` + user + `,"stream":true,"stream_options":{"include_usage":true}}`},
		{"chat-thinking", thinks(), "POST /v1/chat/completions", `{` + user + `,"thinking":{"type":"enabled"}}`},
		{"chat-thinking-stream", thinks(), "POST /v1/chat/completions", `{` + user + `,"reasoning_effort":"high","stream":true,"stream_options":{"include_usage":true}}`},
		{"chat-logprobs", answering("A€"), "POST /v1/chat/completions", `{` + user + `,"logprobs":true,"top_logprobs":2}`},
		{"chat-logprobs-stream", answering("A", "b"), "POST /v1/chat/completions", `{` + user + `,"logprobs":true,"stream":true}`},
		{"chat-thinking-logprobs", answering("x</think>y"), "POST /v1/chat/completions", `{` + user + `,"logprobs":true,"enable_thinking":true}`},
		{"chat-n", hello(), "POST /v1/chat/completions", `{` + user + `,"n":2,"seed":7}`},
		{"chat-tools", calls(), "POST /v1/chat/completions", `{` + user + tools + `}`},
		{"chat-tools-stream", calls(), "POST /v1/chat/completions", `{` + user + tools + `,"stream":true}`},
		{"chat-tools-thinking", answering("Hm", callText), "POST /v1/chat/completions", `{` + user + tools + `,"thinking":{"type":"enabled"}}`},
		{"chat-tools-cut", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /v1/chat/completions", `{` + user + tools + `}`},
		{"chat-tools-cut-stream", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /v1/chat/completions", `{` + user + tools + `,"stream":true}`},
		{"chat-tools-none", answering(callText), "POST /v1/chat/completions", `{` + user + tools + `,"tool_choice":"none"}`},
		{"chat-tools-other", answering(strings.ReplaceAll(callText, "weather", "rm")), "POST /v1/chat/completions", `{` + user + tools + `}`},
		{"completion", hello(), "POST /v1/completions", `{"prompt":"Say"}`},
		{"completion-stream", hello(), "POST /v1/completions", `{"prompt":"Say","stream":true,"stream_options":{"include_usage":true}}`},
		{"completion-list", hello(), "POST /v1/completions", `{"prompt":["a",[98,256],"c"],"n":1,"echo":true}`},
		{"completion-logprobs", answering("A€"), "POST /v1/completions", `{"prompt":"Say","logprobs":2}`},
		{"completion-echo-logprobs", echoes(), "POST /v1/completions", `{"prompt":[83,97],"logprobs":1,"echo":true,"max_tokens":0}`},
		{"completion-echo-text-logprobs", echoes(), "POST /v1/completions", `{"prompt":"S\u00e9","logprobs":0,"echo":true,"stream":true}`},
		{"models", hello(), "GET /v1/models", ""},
		{"model", hello(), "GET /v1/models/deepseek-chat", ""},
		{"model-unknown", hello(), "GET /v1/models/gpt/5", ""},
		{"tokenize", hello(), "POST /tokenize", `{"text":"a€<｜User｜>"}`},
		{"tokenize-options", hello(), "POST /tokenize", `{"content":"<think>","add_special":true,"parse_special":false}`},
		{"detokenize", hello(), "POST /detokenize", `{"tokens":[256,226,130,172,33]}`},
		{"healthz", hello(), "GET /healthz", ""},
		{"readyz", hello(), "GET /readyz", ""},
		{"readyz-not", &fakeEngine{ready: fmt.Errorf("rank 1 is gone")}, "GET /readyz", ""},
		{"readyz-unavailable", &fakeEngine{ready: errRank1}, "GET /readyz", ""},
		{"unavailable", rejecting(errRank1), "POST /v1/chat/completions", `{` + user + `}`},
		{"unavailable-in-stream", breaks(errRank1), "POST /v1/chat/completions", `{` + user + `,"stream":true}`},
		{"unavailable-in-completion-stream", breaks(errRank1), "POST /v1/completions", `{"prompt":"Say","stream":true}`},
		{"busy", rejecting(engine.ErrBusy), "POST /v1/chat/completions", `{` + user + `}`},
		{"bad-field", hello(), "POST /v1/chat/completions", `{` + user + `,"temperature":"hot"}`},
		{"no-such-path", hello(), "GET /v1/nothing", ""},
		{"wrong-method", hello(), "GET /v1/completions", ""},
		{"failed-in-stream", breaks(fmt.Errorf("%w: layer 3", engine.ErrFailed)), "POST /v1/chat/completions", `{` + user + `,"stream":true}`},
		{"failed-before-stream", &fakeEngine{script: func(int, engine.Request) ([]act, error) {
			return []act{{err: fmt.Errorf("%w: layer 3", engine.ErrFailed)}}, nil
		}}, "POST /v1/chat/completions", `{` + user + `,"stream":true}`},
	}
	for _, tt := range tests {
		tt.check(t, func(*Config) {})
	}
}

// transcript is a request with its response in a golden file.
type transcript struct {
	name   string
	engine *fakeEngine
	method string // path after a space
	body   string
}

func (tt transcript) check(t *testing.T, change func(*Config)) {
	t.Run(tt.name, func(t *testing.T) {
		c := testConfig(tt.engine)
		change(&c)
		method, path, _ := strings.Cut(tt.method, " ")
		w := call(New(c), method, path, tt.body)
		var out strings.Builder
		fmt.Fprintf(&out, "> %s\n", tt.method)
		if tt.body != "" {
			fmt.Fprintf(&out, "> %s\n", tt.body)
		}
		fmt.Fprintf(&out, "\n%d\n", w.Code)
		for _, name := range []string{"Content-Type", "Cache-Control", "Retry-After", "Allow", "X-Request-Id"} {
			if v := w.Header().Get(name); v != "" {
				fmt.Fprintf(&out, "%s: %s\n", name, v)
			}
		}
		out.WriteString("\n" + w.Body.String())
		golden(t, tt.name+".txt", out.String())
	})
}

// echoes returns an engine that also returns the log-probabilities of the prompt.
func echoes() *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), "!")
		var prompt []engine.Token
		for _, id := range r.Prompt {
			b := apitest.Tokenizer{}.Bytes(id)
			prompt = append(prompt, engine.Token{ID: id, Bytes: b, Logprob: -2, Top: []engine.Alternative{{ID: 'z', Bytes: []byte("z"), Logprob: -1}}})
		}
		acts[0].event.Prompt = prompt
		return acts, nil
	}}
}

// breaks returns an engine that fails in the middle of every answer.
func breaks(err error) *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), "Hel")[:1]
		return append(acts, act{err: err}), nil
	}}
}

// errRank1 is the error of an engine after its group lost rank 1.
var errRank1 = fmt.Errorf("%w: %w", engine.ErrUnavailable,
	&model.UnavailableError{Cause: errors.New("rank 1 at 10.0.0.2:41234: connection closed; waiting for rank 1")})

func TestConfigMustBeComplete(t *testing.T) {
	for _, c := range []Config{{}, {Engine: answering()}, {Engine: answering(), Tokenizer: apitest.Tokenizer{}}} {
		require.Panics(t, func() { New(c) })
	}
}

// Tools of a request, and an answer that calls one twice.
const (
	tools    = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}}}}}]`
	callText = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"place\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n" +
		"<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"place\" string=\"true\">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)

// calls returns an engine that calls tools, in parts.
func calls() *fakeEngine {
	return answering("I look.\n", "\n"+callText[:70], callText[70:90], callText[90:200], callText[200:])
}

// cutShort returns an engine that ends its answer because of its length.
func cutShort(text string) *fakeEngine {
	return &fakeEngine{script: func(int, engine.Request) ([]act, error) {
		return []act{{event: engine.Event{Text: text, Finish: engine.FinishLength, Usage: engine.Usage{Prompt: 1, Completion: 2}}}}, nil
	}}
}
