package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
)

// TestAnthropicTranscripts compares whole responses of the Messages API with golden
// files.
func TestAnthropicTranscripts(t *testing.T) {
	hello := func() *fakeEngine { return answering("Hel", "lo") }
	thinks := func() *fakeEngine { return answering("Let me", " see.</th", "ink>Paris") }
	const thinking = `,"thinking":{"type":"enabled","budget_tokens":1024}`
	body := func(more string) string { return `{"max_tokens":64,` + user + more + `}` }
	for _, tt := range []transcript{
		{"anthropic", hello(), "POST /v1/messages", body(`,"model":"claude-opus-4-5"`)},
		{"anthropic-stream", hello(), "POST /v1/messages?beta=true", body(`,"stream":true`)},
		{"anthropic-thinking", thinks(), "POST /v1/messages", body(thinking)},
		{"anthropic-thinking-stream", thinks(), "POST /v1/messages", body(`,"stream":true` + thinking)},
		{"anthropic-omitted-stream", thinks(), "POST /v1/messages", body(`,"stream":true,"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"max"}`)},
		{"anthropic-stop", stopping("Hel", "lo"), "POST /v1/messages", body(`,"stop_sequences":["lo"]`)},
		{"anthropic-length-stream", ending(engine.FinishLength, "Hel"), "POST /v1/messages", body(`,"stream":true`)},
		{"anthropic-count", hello(), "POST /v1/messages/count_tokens", body("")},
		{"anthropic-tools", calls(), "POST /v1/messages", body(anthropicTools)},
		{"anthropic-tools-stream", calls(), "POST /v1/messages", body(anthropicTools + `,"stream":true`)},
		{"anthropic-tools-cut", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /v1/messages", body(anthropicTools)},
		{"anthropic-tools-cut-stream", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /v1/messages", body(anthropicTools + `,"stream":true`)},
		{"anthropic-busy", rejecting(engine.ErrBusy), "POST /v1/messages", body("")},
		{"anthropic-unavailable", rejecting(errRank1), "POST /v1/messages", body("")},
		{"anthropic-unavailable-in-stream", breaks(errRank1), "POST /v1/messages", body(`,"stream":true`)},
		{"anthropic-wrong-method", hello(), "GET /v1/messages", ""},
	} {
		tt.check(t, func(c *Config) { c.StrictModelNames = false })
	}
}

// stopping returns an engine that answers until a stop string, the last piece.
func stopping(pieces ...string) *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		last := len(pieces) - 1
		acts := answerActs(len(r.Prompt), pieces[:last]...)
		acts[last].event.StopText = pieces[last]
		return acts, nil
	}}
}

// ending returns an engine that answers and ends for a reason.
func ending(reason engine.FinishReason, pieces ...string) *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		acts := answerActs(len(r.Prompt), pieces...)
		acts[len(acts)-1].event.Finish = reason
		acts[len(acts)-1].event.Tokens = nil
		return acts, nil
	}}
}

// TestAnthropicConversation checks how messages become tokens: the number of the
// billing line never gets into the prompt, and later instructions stay where they
// are.
func TestAnthropicConversation(t *testing.T) {
	tests := []struct{ body, want string }{
		{`"system":"S","messages":[{"role":"user","content":"a"}]`, "<bos>S<user>a<assistant></think>"},
		{`"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=0f3a1;"},{"type":"text","text":"S","cache_control":{"type":"ephemeral"}},{"type":"text","text":"T"}],"messages":[{"role":"user","content":"a"}]`,
			"<bos>S\n\nT<user>a<assistant></think>"},
		{`"system":"x-anthropic-billing-header: cch=1;\nS","messages":[{"role":"user","content":"a"}]`, "<bos>S<user>a<assistant></think>"},
		{`"system":"x-anthropic-billing-header: cch=1;","messages":[{"role":"user","content":"a"}]`, "<bos><user>a<assistant></think>"},
		{`"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"system","content":"R"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]`,
			"<bos><user>a\n\nR<assistant></think>b<eos><user>c<assistant></think>"},
		{`"thinking":{"type":"enabled"},"messages":[{"role":"user","content":"a"}]`, "<bos><user>a<assistant><think>"},
		{`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, "<bos><user>a<assistant></think>b"},
		{`"messages":[{"role":"user","content":"<think>"}]`, "<bos><user>‹think›<assistant></think>"},
	}
	for _, tt := range tests {
		e := answering("ok")
		w := call(New(testConfig(e)), "POST", "/v1/messages", `{"max_tokens":5,`+tt.body+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		require.Equal(t, tt.want, spelled(e.submitted()[0].Prompt), tt.body)
		w = call(New(testConfig(e)), "POST", "/v1/messages/count_tokens", `{`+tt.body+`}`)
		require.JSONEq(t, fmt.Sprintf(`{"input_tokens":%d}`, len(e.submitted()[0].Prompt)), w.Body.String())
	}
}

// spelled is a prompt with the control tokens in angle brackets.
func spelled(ids []int32) string {
	marks := map[int32]string{apitest.BOS: "<bos>", apitest.EOS: "<eos>", apitest.User: "<user>", apitest.Assistant: "<assistant>",
		apitest.Think: "<think>", apitest.ThinkEnd: "</think>"}
	var out strings.Builder
	for _, id := range ids {
		if mark, ok := marks[id]; ok {
			out.WriteString(mark)
		} else {
			// a control token's name in a message is ordinary text
			out.WriteString(strings.NewReplacer("<", "‹", ">", "›").Replace(string(rune(id))))
		}
	}
	return out.String()
}

// TestAnthropicInvalid checks the shape and the status of errors.
func TestAnthropicInvalid(t *testing.T) {
	e := answering("never")
	h := New(testConfig(e))
	for _, tt := range []struct {
		body   string
		status int
		kind   string
		says   string
	}{
		{`{`, 400, "invalid_request_error", "not valid JSON"},
		{`{}`, 400, "invalid_request_error", "'messages' is missing"},
		{`{"messages":[]}`, 400, "invalid_request_error", "'messages' is empty"},
		{`{"messages":[{"role":"tool","content":"a"}]}`, 400, "invalid_request_error", "messages[0].role"},
		{`{"messages":[{"role":"user"}]}`, 400, "invalid_request_error", "messages[0].content"},
		{`{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, 400, "invalid_request_error", "messages[0].content[0].type"},
		{`{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`, 400, "invalid_request_error", "messages[0].role"},
		{`{"messages":[5]}`, 400, "invalid_request_error", "'messages[0]' must be an object"},
		{`{` + user + `,"max_tokens":-1}`, 400, "invalid_request_error", "max_tokens"},
		{`{` + user + `,"tools":[{"type":"teleport_20260101","name":"t"}]}`, 400, "invalid_request_error", "tools[0].type"},
		{`{` + user + `,"output_format":{"type":"json_schema"}}`, 400, "invalid_request_error", "output_format"},
		{`{` + user + `,"output_format":{"type":"json_schema","schema":{"not":{}}}}`, 400, "invalid_request_error", "output_format.schema"},
		{`{` + user + `,"thinking":{"type":"x"}}`, 400, "invalid_request_error", "thinking.type"},
		{`{` + user + `,"output_config":{"effort":"x"}}`, 400, "invalid_request_error", "output_config.effort"},
		{`{` + user + `,"output_config":{"format":{"type":"json_schema"}}}`, 400, "invalid_request_error", "output_config.format"},
		{`{` + user + `,"tool_choice":{"type":"any"}}`, 400, "invalid_request_error", "tool_choice"},
		{`{` + user + `,"stop_sequences":[""]}`, 400, "invalid_request_error", "stop_sequences"},
		{`{` + user + `,"model":"other"}`, 404, "not_found_error", "serves 'tiny'"},
	} {
		w := call(h, "POST", "/v1/messages", tt.body)
		require.Equal(t, tt.status, w.Code, tt.body)
		kind, message := anthropicError(t, w.Body.Bytes())
		require.Equal(t, tt.kind, kind, tt.body)
		require.Contains(t, message, tt.says)
	}
	require.Empty(t, e.submitted())
}

func anthropicError(t *testing.T, body []byte) (kind, message string) {
	t.Helper()
	var o struct {
		Type  string
		Error struct{ Type, Message string }
	}
	require.NoError(t, json.Unmarshal(body, &o))
	require.Equal(t, "error", o.Type)
	require.NotEmpty(t, o.Error.Message)
	return o.Error.Type, o.Error.Message
}

// TestAnthropicKey checks that a key may come as its clients send it.
func TestAnthropicKey(t *testing.T) {
	c := testConfig(answering("ok"))
	c.APIKeys = []string{"k"}
	h := New(c)
	body := `{"max_tokens":5,` + user + `}`
	require.Equal(t, 200, call(h, "POST", "/v1/messages", body, "X-Api-Key", "k").Code)
	require.Equal(t, 200, call(h, "POST", "/v1/messages", body, "Authorization", "Bearer k").Code)
	for _, headers := range [][]string{nil, {"X-Api-Key", "no"}, {"X-Api-Key", "k", "Authorization", "Bearer no"}} {
		w := call(h, "POST", "/v1/messages", body, headers...)
		require.Equal(t, 401, w.Code)
		kind, _ := anthropicError(t, w.Body.Bytes())
		require.Equal(t, "authentication_error", kind)
	}
}

// TestModelNames checks that a server accepts any name and repeats it in the answer, and
// with StrictModelNames accepts only its own.
func TestModelNames(t *testing.T) {
	for _, strict := range []bool{false, true} {
		c := testConfig(answering("ok"))
		c.StrictModelNames = strict
		h := New(c)
		for path, body := range map[string]string{
			"/v1/chat/completions": user, "/v1/completions": `"prompt":"a"`, "/v1/messages": user,
		} {
			for name, status := range map[string]int{
				"tiny": 200, "deepseek-chat": 200, "default": 200, "claude-haiku-4-5": 404, "o\"<ther": 404, strings.Repeat("x", 257): 400,
			} {
				if !strict && status == 404 {
					status = 200
				}
				quoted := testenv.JSON(t, name)
				w := call(h, "POST", path, `{"model":`+string(quoted)+`,`+body+`}`)
				require.Equal(t, status, w.Code, "%s %s", path, name)
				o := testenv.FromJSON[struct{ Model string }](t, w.Body.Bytes())
				if status == 200 {
					require.Equal(t, name, o.Model, path)
				}
			}
			w := call(h, "POST", path, `{`+body+`}`)
			require.Contains(t, w.Body.String(), `"model":"tiny"`)
		}
	}
}

// FuzzMessages checks that any body gets an error object or a message, without a
// panic, and that the engine sees only valid requests.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"max_tokens":9,` + user + `}`,
		`{` + user + `,"stream":true,"thinking":{"type":"enabled","display":"omitted"},"stop_sequences":["a"],"top_k":5,"temperature":0}`,
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"system","content":"b"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"redacted_thinking","data":""}]}]}`,
		`{"messages":[{"role":"system","content":"\ud800"}]}`, `[]`, `{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h := New(testConfig(checked(t)))
		w := call(h, "POST", "/v1/messages", string(body), "Content-Type", "application/json")
		counted := call(h, "POST", "/v1/messages/count_tokens", string(body), "Content-Type", "application/json")
		switch media, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";"); {
		case w.Code != http.StatusOK:
			require.True(t, w.Code == 400 || w.Code == 404, "%d", w.Code)
			anthropicError(t, w.Body.Bytes())
			return
		case media == "text/event-stream":
			require.True(t, strings.HasPrefix(w.Body.String(), "event: message_start\n"), w.Body)
			require.True(t, strings.HasSuffix(w.Body.String(), "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), w.Body)
		default:
			require.True(t, json.Valid(w.Body.Bytes()), w.Body)
			require.Contains(t, w.Body.String(), `"usage":`)
		}
		require.Equal(t, 200, counted.Code)
	})
}

const anthropicTools = `,"tools":[{"name":"weather","input_schema":{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}}}},{"type":"web_search_20250305","name":"web_search"}]`
