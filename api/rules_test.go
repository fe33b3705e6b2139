package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/api/dialect"
	"ringmaster/api/internal/openai"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
)

const user = `"messages":[{"role":"user","content":"Hi"}]`

// errorOf parses a response that must be an OpenAI error object and nothing else.
func errorOf(t *testing.T, w *httptest.ResponseRecorder) errorBody {
	t.Helper()
	var o struct {
		Error map[string]any `json:"error"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o), w.Body.String())
	for _, name := range []string{"message", "type", "param", "code"} {
		require.Contains(t, o.Error, name)
	}
	require.Len(t, o.Error, 4)
	e := testenv.FromJSON[struct{ Error errorBody }](t, w.Body.Bytes())
	require.NotEmpty(t, e.Error.Message)
	return e.Error
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// TestNumbersBeyondFloat64 checks that a number that float64 cannot hold is a 400 in any
// field, and that nothing of the body reaches the log.
func TestNumbersBeyondFloat64(t *testing.T) {
	var log bytes.Buffer
	c := testConfig(answering("ok"))
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	h := New(c)
	for _, u := range openai.UnsupportedFields {
		for _, v := range []string{`1e999`, `[-1e999]`, `{"secret":[1e400]}`, `[` + strings.Repeat("1,", 1000) + `1e999]`} {
			w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{%s,%q:%s}`, user, u.Name, v))
			require.Equal(t, 400, w.Code, "%s %s", u.Name, v)
		}
	}
	for _, name := range []string{"temperature", "top_k", "seed", "n", "max_tokens", "stop", "prefix", "messages", "logit_bias", "thinking", "model"} {
		require.Less(t, call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{%s,%q:{"secret":1e999}}`, user, name)).Code, 500, name)
		require.Less(t, call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{%s,%q:1e999}`, user, name)).Code, 500, name)
	}
	for _, name := range []string{"tool_calls", "function_call", "audio"} {
		w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"assistant","content":"x",%q:[{"secret":1e999}]},{"role":"user","content":"y"}]}`, name))
		require.Equal(t, 400, w.Code, name)
	}
	require.NotContains(t, log.String(), "panicked")
	require.NotContains(t, log.String(), "secret")
}

// TestNeutralValues checks that a neutral value is recognised however it is
// written.
func TestNeutralValues(t *testing.T) {
	h := New(testConfig(answering("ok")))
	for _, field := range []string{
		`"response_format": { "type" : "text" }`, `"tool_choice":"\u006eone"`, `"tools":[` + strings.Repeat(" ", 1000) + `]`, `"top_a":0`, `"repeat_penalty":1.0`,
	} {
		require.Equal(t, 200, call(h, "POST", "/v1/chat/completions", `{`+user+`,`+field+`}`).Code, field)
	}
}

func TestInvalidRequests(t *testing.T) {
	chat := func(more string) string { return `{` + user + `,` + more + `}` }
	text := func(more string) string { return `{"prompt":"a",` + more + `}` }
	tests := []struct {
		path, body  string
		status      int
		param, code string
	}{
		// the body as a whole
		{"chat", ``, 400, "", "invalid_json"},
		{"chat", ` `, 400, "", "invalid_json"},
		{"chat", `[]`, 400, "", "invalid_json"},
		{"chat", `null`, 400, "", "invalid_json"},
		{"chat", `{"messages":`, 400, "", "invalid_json"},
		{"chat", chat(`"seed":1`) + `{}`, 400, "", "invalid_json"},
		{"chat", chat(`"seed":1`) + ` x`, 400, "", "invalid_json"},
		{"chat", "{\"messages\":\"\xff\"}", 400, "", "invalid_json"},
		{"chat", chat(`"temperature":NaN`), 400, "", "invalid_json"},
		{"chat", `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400, "", "invalid_json"},
		// messages
		{"chat", `{}`, 400, "messages", "missing_required_parameter"},
		{"chat", `{"Messages":[]}`, 400, "messages", "missing_required_parameter"},
		{"chat", `{"messages":null}`, 400, "messages", "missing_required_parameter"},
		{"chat", `{"messages":{}}`, 400, "messages", "invalid_type"},
		{"chat", `{"messages":[]}`, 400, "messages", "invalid_value"},
		{"chat", `{"messages":["hi"]}`, 400, "messages[0]", "invalid_type"},
		{"chat", `{"messages":[{}]}`, 400, "messages[0].role", "missing_required_parameter"},
		{"chat", `{"messages":[{"role":1}]}`, 400, "messages[0].role", "invalid_type"},
		{"chat", `{"messages":[{"role":"boss","content":"x"}]}`, 400, "messages[0].role", "invalid_value"},
		{"chat", `{"messages":[{"role":"user"}]}`, 400, "messages[0].content", "missing_required_parameter"},
		{"chat", `{"messages":[{"role":"user","content":7}]}`, 400, "messages[0].content", "invalid_type"},
		{"chat", `{"messages":[{"role":"user","content":["x"]}]}`, 400, "messages[0].content[0]", "invalid_type"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 400, "messages[0].content[0].text", "missing_required_parameter"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}`, 400, "messages[0].content[0].text", "invalid_type"},
		{"chat", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, 400, "messages[0].content[0].type", "unsupported_parameter"},
		{"chat", `{"messages":[{"role":"tool","content":"x","tool_call_id":"1"}]}`, 400, "messages[0].role", "invalid_value"},
		{"chat", `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"1"}]}]}`, 400, "messages[1].tool_calls[0].function", "missing_required_parameter"},
		{"chat", `{"messages":[{"role":"assistant","content":"x"}]}`, 400, "messages[0].role", "invalid_value"},
		{"chat", `{"messages":[{"role":"user","content":"x","prefix":true},{"role":"user","content":"x"}]}`, 400, "messages[0].prefix", "invalid_value"},
		{"chat", chat(`"continue_final_message":true`), 400, "messages[0].role", "invalid_value"},
		// fields of both endpoints
		{"chat", chat(`"model":5`), 400, "model", "invalid_type"},
		{"chat", chat(`"model":"gpt-4"`), 404, "model", "model_not_found"},
		{"chat", chat(`"temperature":2.1`), 400, "temperature", "out_of_range"},
		{"chat", chat(`"temperature":1e999`), 400, "temperature", "out_of_range"},
		{"chat", chat(`"temperature":-0.1`), 400, "temperature", "out_of_range"},
		{"chat", chat(`"temperature":"1"`), 400, "temperature", "invalid_type"},
		{"chat", chat(`"top_p":1.5`), 400, "top_p", "out_of_range"},
		{"chat", chat(`"top_k":-2`), 400, "top_k", "out_of_range"},
		{"chat", chat(`"top_k":1.5`), 400, "top_k", "invalid_type"},
		{"chat", chat(`"min_p":-1`), 400, "min_p", "out_of_range"},
		{"chat", chat(`"presence_penalty":3`), 400, "presence_penalty", "out_of_range"},
		{"chat", chat(`"frequency_penalty":-2.5`), 400, "frequency_penalty", "out_of_range"},
		{"chat", chat(`"logit_bias":[]`), 400, "logit_bias", "invalid_type"},
		{"chat", chat(`"logit_bias":{"x":1}`), 400, "logit_bias", "invalid_value"},
		{"chat", chat(`"logit_bias":{"99999":1}`), 400, "logit_bias", "invalid_value"},
		{"chat", chat(`"logit_bias":{"5":101}`), 400, "logit_bias.5", "out_of_range"},
		{"chat", chat(`"seed":1.5`), 400, "seed", "invalid_type"},
		{"chat", chat(`"stop":5`), 400, "stop", "invalid_type"},
		{"chat", chat(`"stop":""`), 400, "stop", "invalid_value"},
		{"chat", chat(`"stop":["a",5]`), 400, "stop", "invalid_type"},
		{"chat", chat(`"stop":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 17), ",") + `]`), 400, "stop", "too_many_items"},
		{"chat", chat(`"stop":"` + strings.Repeat("a", 5000) + `"`), 400, "stop", "invalid_value"},
		{"chat", chat(`"n":0`), 400, "n", "out_of_range"},
		{"chat", chat(`"n":9`), 400, "n", "out_of_range"},
		{"chat", chat(`"stream":"yes"`), 400, "stream", "invalid_type"},
		{"chat", chat(`"stream_options":{}`), 400, "stream_options", "invalid_value"},
		{"chat", chat(`"stream":true,"stream_options":5`), 400, "stream_options", "invalid_type"},
		{"chat", chat(`"stream":true,"stream_options":{"include_usage":1}`), 400, "stream_options.include_usage", "invalid_type"},
		{"chat", chat(`"ignore_eos":1`), 400, "ignore_eos", "invalid_type"},
		{"chat", chat(`"min_tokens":-1`), 400, "min_tokens", "out_of_range"},
		{"chat", chat(`"min_tokens":5,"max_tokens":4`), 400, "min_tokens", "invalid_value"},
		// chat only
		{"chat", chat(`"max_tokens":0`), 400, "max_tokens", "out_of_range"},
		{"chat", chat(`"max_completion_tokens":-1`), 400, "max_completion_tokens", "out_of_range"},
		{"chat", chat(`"logprobs":2`), 400, "logprobs", "invalid_type"},
		{"chat", chat(`"top_logprobs":2`), 400, "top_logprobs", "invalid_value"},
		{"chat", chat(`"logprobs":true,"top_logprobs":21`), 400, "top_logprobs", "out_of_range"},
		{"chat", chat(`"reasoning_effort":"huge"`), 400, "reasoning_effort", "invalid_value"},
		{"chat", chat(`"thinking":true`), 400, "thinking", "invalid_type"},
		{"chat", chat(`"thinking":{"type":"perhaps"}`), 400, "thinking.type", "invalid_value"},
		{"chat", chat(`"chat_template_kwargs":{"thinking":1}`), 400, "chat_template_kwargs.thinking", "invalid_type"},
		{"chat", chat(`"tools":[{"type":"function"}]`), 400, "tools[0].function", "missing_required_parameter"},
		{"chat", chat(`"tool_choice":"required"`), 400, "tool_choice", "invalid_value"},
		{"chat", chat(`"tools":[{"type":"web_search"}]`), 400, "tools[0].type", "unsupported_parameter"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a b"}}]`), 400, "tools[0].function.name", "invalid_value"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a","parameters":[]}}]`), 400, "tools[0].function.parameters", "invalid_type"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"array"}}}]`), 400, "tools[0].function.parameters.type", "invalid_value"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]`), 400, "tools[1].function.name", "invalid_value"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":{"type":"function","function":{"name":"b"}}`), 400, "tool_choice", "invalid_value"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":"some"`), 400, "tool_choice", "invalid_value"},
		{"chat", chat(`"response_format":{"type":"json_schema"}`), 400, "response_format.json_schema.schema", "missing_required_parameter"},
		{"chat", chat(`"response_format":{"type":"xml"}`), 400, "response_format.type", "unsupported_parameter"},
		{"chat", chat(`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{"a":{"not":{"minLength":1}}}}}}`), 400, "response_format.json_schema.schema", "unsupported_schema"},
		{"chat", chat(`"guided_regex":"(?=a)b"`), 400, "guided_regex", "invalid_value"},
		{"chat", chat(`"guided_json":{"type":"string"},"guided_choice":["a"]`), 400, "", "invalid_value"},
		{"chat", chat(`"response_format":{"type":"json_object"},"ignore_eos":true`), 400, "ignore_eos", "invalid_value"},
		{"chat", chat(`"tools":[{"type":"function","function":{"name":"a","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}}]`), 400, "tools[0].function.parameters", "unsupported_schema"},
		{"chat", chat(`"modalities":["text","audio"]`), 400, "modalities", "unsupported_parameter"},
		{"chat", chat(`"repetition_penalty":1.1`), 400, "repetition_penalty", "unsupported_parameter"},
		// text only
		{"text", `{}`, 400, "prompt", "missing_required_parameter"},
		{"text", `{"prompt":5}`, 400, "prompt", "invalid_type"},
		{"text", `{"prompt":[]}`, 400, "prompt", "invalid_value"},
		{"text", `{"prompt":["a",5]}`, 400, "prompt[1]", "invalid_type"},
		{"text", `{"prompt":[5,"a"]}`, 400, "prompt", "invalid_type"},
		{"text", `{"prompt":[[]]}`, 400, "prompt[0]", "invalid_value"},
		{"text", `{"prompt":[[-1]]}`, 400, "prompt[0]", "invalid_value"},
		{"text", `{"prompt":[99999]}`, 400, "prompt", "invalid_value"},
		{"text", `{"prompt":[1.5]}`, 400, "prompt", "invalid_value"},
		{"text", `{"prompt":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 65), ",") + `]}`, 400, "prompt", "invalid_value"},
		{"text", text(`"suffix":"x"`), 400, "suffix", "unsupported_parameter"},
		{"text", text(`"best_of":2`), 400, "best_of", "unsupported_parameter"},
		{"text", text(`"logprobs":true`), 400, "logprobs", "invalid_type"},
		{"text", text(`"logprobs":21`), 400, "logprobs", "out_of_range"},
		{"text", text(`"echo":"yes"`), 400, "echo", "invalid_type"},
		{"text", text(`"max_tokens":-1`), 400, "max_tokens", "out_of_range"},
		// the others
		{"/tokenize", `{}`, 400, "text", "missing_required_parameter"},
		{"/tokenize", `{"text":1}`, 400, "text", "invalid_type"},
		{"/detokenize", `{}`, 400, "tokens", "missing_required_parameter"},
		{"/detokenize", `{"tokens":"a"}`, 400, "tokens", "invalid_type"},
		{"/detokenize", `{"tokens":["a"]}`, 400, "tokens", "invalid_type"},
		{"/detokenize", `{"tokens":[1e9]}`, 400, "tokens", "invalid_value"},
	}
	e := answering("never")
	h := New(testConfig(e))
	paths := map[string]string{"chat": "/v1/chat/completions", "text": "/v1/completions"}
	for _, tt := range tests {
		name := tt.body
		if len(name) > 100 {
			name = name[:100]
		}
		t.Run(fmt.Sprintf("%s %s", tt.path, name), func(t *testing.T) {
			path := cmp.Or(paths[tt.path], tt.path)
			w := call(h, "POST", path, tt.body)
			got := errorOf(t, w)
			require.Equal(t, tt.status, w.Code, w.Body.String())
			require.Equal(t, tt.param, value(got.Param), w.Body.String())
			require.Equal(t, tt.code, value(got.Code), w.Body.String())
			require.Equal(t, "invalid_request_error", got.Type)
		})
	}
	require.Empty(t, e.submitted(), "an invalid request reached the engine")
}

// TestBodyMustBeAnObject checks that the error names the type of a body that is
// not an object.
func TestBodyMustBeAnObject(t *testing.T) {
	for body, kind := range map[string]string{
		"null": "null", "true": "a boolean", " \n\t false": "a boolean", "-1.5e3": "a number", `"text"`: "a string", "[{}]": "an array",
	} {
		_, failed := dialect.ParseObject([]byte(body))
		require.NotNil(t, failed, body)
		require.Equal(t, "The request body must be a JSON object, not "+kind+".", failed.Message)
		require.Equal(t, "invalid_json", failed.Code)
	}
	for body, message := range map[string]string{
		"": "is empty", " \r\n": "is empty", "{": "is not valid JSON", "{} []": "Unexpected data after the JSON object at byte 3",
	} {
		_, failed := dialect.ParseObject([]byte(body))
		require.NotNil(t, failed, body)
		require.Contains(t, failed.Message, message)
	}
}

// TestWrongTypes checks that the error names the type of a member that has the
// wrong one.
func TestWrongTypes(t *testing.T) {
	for body, kind := range map[string]string{"true": "a boolean", "false": "a boolean", "1": "a number", `"1"`: "a string", "{}": "an object"} {
		f, failed := dialect.ParseObject([]byte(`{"stop":` + body + `}`))
		require.Nil(t, failed)
		f.List("stop", 16)
		require.NotNil(t, f.Err, body)
		require.Equal(t, "'stop' must be an array, not "+kind+".", f.Err.Message)
	}
}

// TestUnsupportedFields checks that each field of the list is rejected with a
// value of its own and accepted with each neutral one.
func TestUnsupportedFields(t *testing.T) {
	h := New(testConfig(answering("ok")))
	for _, u := range openai.UnsupportedFields {
		w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{%s,%q:{"x":1}}`, user, u.Name))
		require.Equal(t, 400, w.Code, u.Name)
		e := errorOf(t, w)
		require.Equal(t, "unsupported_parameter", value(e.Code), u.Name)
		require.Equal(t, u.Name, value(e.Param))
		require.Contains(t, e.Message, u.Remedy)
		for _, neutral := range append(u.Neutral, "null") {
			w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(`{%s,%q: %s }`, user, u.Name, neutral))
			require.Equal(t, 200, w.Code, "%s: %s: %s", u.Name, neutral, w.Body)
		}
	}
}

// TestIgnoredFields checks that fields which do not change the answer, and
// unknown ones, are accepted.
func TestIgnoredFields(t *testing.T) {
	h := New(testConfig(answering("ok")))
	w := call(h, "POST", "/v1/chat/completions", `{`+user+`,"user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto",
		"parallel_tool_calls":true,"safety_identifier":"s","prompt_cache_key":"k","unheard_of":[1,{"a":2}],
		"response_format":{ "type" : "text" },"temperature":null,"stop":null,"stream_options":null,"max_tokens":16.0}`)
	require.Equal(t, 200, w.Code, w.Body)
}

// TestRequest checks how requests are translated for the engine.
func TestRequest(t *testing.T) {
	seed := func(v uint64) *uint64 { return &v }
	standard := engine.Sampling{Temperature: 1, TopP: 1}
	with := func(change func(*engine.Sampling)) engine.Sampling {
		s := standard
		change(&s)
		return s
	}
	prompt, turns := []int32{apitest.BOS, apitest.User, 'H', 'i', apitest.Assistant, apitest.ThinkEnd}, []int{4}
	text := []int32{apitest.BOS, 'a'}
	tests := []struct {
		path, body string
		want       engine.Request
	}{
		{"chat/completions", `{` + user + `}`, engine.Request{Prompt: prompt, Branches: turns, Sampling: standard}},
		{"chat/completions", `{` + user + `,"max_tokens":5,"max_completion_tokens":7,"min_tokens":2,"ignore_eos":true,"stop":["a","b"],
			"temperature":0,"top_p":0.5,"top_k":40,"min_p":0.05,"presence_penalty":1,"frequency_penalty":-1,"logit_bias":{"5":-100,"6":2.5},
			"seed":-1,"logprobs":true,"top_logprobs":20,"model":"deepseek-chat"}`,
			engine.Request{Prompt: prompt, Branches: turns, MaxTokens: 7, MinTokens: 2, IgnoreEOS: true, Stop: []string{"a", "b"}, Logprobs: true, TopLogprobs: 20,
				Sampling: engine.Sampling{TopP: 0.5, TopK: 40, MinP: 0.05, PresencePenalty: 1, FrequencyPenalty: -1,
					LogitBias: map[int32]float64{5: -100, 6: 2.5}, Seed: seed(1<<64 - 1)}}},
		{"chat/completions", `{` + user + `,"top_k":-1,"top_p":0,"stop":"x"}`,
			engine.Request{Prompt: prompt, Branches: turns, Stop: []string{"x"}, Sampling: with(func(s *engine.Sampling) { s.TopP = 5e-324 })}},
		{"completions", `{"prompt":"a"}`, engine.Request{Prompt: text, Sampling: standard, MaxTokens: 16}},
		{"completions", `{"prompt":"a<think>","max_tokens":0,"min_tokens":3}`,
			engine.Request{Prompt: append(text[:2:2], apitest.Think), Sampling: standard, MaxTokens: 1}},
		{"completions", `{"prompt":[98,99],"logprobs":3,"echo":true,"best_of":1,"suffix":""}`,
			engine.Request{Prompt: []int32{98, 99}, Sampling: standard, MaxTokens: 16, Logprobs: true, TopLogprobs: 3, PromptLogprobs: true}},
		{"completions", `{"prompt":"a","logprobs":0}`, engine.Request{Prompt: text, Sampling: standard, MaxTokens: 16, Logprobs: true}},
	}
	for _, tt := range tests {
		t.Run(tt.body, func(t *testing.T) {
			e := answering("ok")
			w := call(New(testConfig(e)), "POST", "/v1/"+tt.path, tt.body)
			require.Equal(t, 200, w.Code, w.Body)
			got := e.submitted()
			require.Len(t, got, 1)
			got[0].Related = nil // functions cannot be compared
			require.Equal(t, tt.want, got[0])
		})
	}
}

// TestChoicesHaveDifferentSeeds: with one seed all choices would be the same.
func TestChoicesHaveDifferentSeeds(t *testing.T) {
	e := answering("ok")
	h := New(testConfig(e))
	w := call(h, "POST", "/v1/completions", `{"prompt":["a","b"],"n":2,"seed":10}`)
	require.Equal(t, 200, w.Code, w.Body)
	var seeds []uint64
	var prompts []int32
	for _, r := range e.submitted() {
		seeds = append(seeds, *r.Sampling.Seed)
		prompts = append(prompts, r.Prompt[1])
	}
	require.Equal(t, []uint64{10, 11, 10, 11}, seeds)
	require.Equal(t, []int32{'a', 'a', 'b', 'b'}, prompts)
}

// TestConversation checks how messages become tokens.
func TestConversation(t *testing.T) {
	tests := []struct{ body, want string }{
		{`"messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
			"<bos>S<user>ab<assistant></think>"},
		{`"messages":[{"role":"user","content":"<think>"}],"enable_thinking":true`, "<bos><user>‹think›<assistant><think>"},
		{`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"r"},{"role":"user","content":"c"}]`,
			"<bos><user>a<assistant></think>b<eos><user>c<assistant></think>"},
		{`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","prefix":true}]`, "<bos><user>a<assistant></think>b"},
		{`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"r"}],"continue_final_message":true,"enable_thinking":true`,
			"<bos><user>a<assistant><think>r</think>b"},
		{`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"c"}]`,
			"<bos><user>a<assistant></think><eos><user>c<assistant></think>"},
	}
	for _, tt := range tests {
		e := answering("ok")
		w := call(New(testConfig(e)), "POST", "/v1/chat/completions", `{`+tt.body+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		require.Equal(t, tt.want, spelled(e.submitted()[0].Prompt), tt.body)
	}
}
