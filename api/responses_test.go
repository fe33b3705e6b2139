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

const responsesTools = `,"tools":[{"type":"function","name":"weather","parameters":{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}}}},{"type":"custom","name":"patch","format":{"type":"grammar","syntax":"lark","definition":"start: X"}},{"type":"web_search"},{"type":"namespace","name":"n"}]`

func TestResponsesTranscripts(t *testing.T) {
	hello := func() *fakeEngine { return answering("Hel", "lo") }
	patch := "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"patch\">\n<｜DSML｜parameter name=\"input\" string=\"true\">a \"b\"\n</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
	for _, tt := range []transcript{
		{"responses", hello(), "POST /v1/responses", `{"input":"Hi","instructions":"Be brief."}`},
		{"responses-stream", hello(), "POST /v1/responses", `{"input":[{"role":"user","content":"Hi"}],"stream":true,"store":false}`},
		{"responses-thinking-stream", answering("Hm", ".</think>", "Yes"), "POST /v1/responses", `{"input":"Hi","reasoning":{"effort":"high","summary":"auto"},"stream":true}`},
		{"responses-tools", calls(), "POST /v1/responses", `{"input":"Hi"` + responsesTools + `}`},
		{"responses-tools-stream", calls(), "POST /v1/responses", `{"input":"Hi","stream":true` + responsesTools + `}`},
		{"responses-custom-stream", answering(patch), "POST /v1/responses", `{"input":"Hi","stream":true` + responsesTools + `}`},
		{"responses-cut-stream", cutShort("Hi\n\n" + callText[:len(callText)-60]), "POST /v1/responses", `{"input":"Hi","stream":true` + responsesTools + `}`},
		{"responses-format-choice", answering(`{"a":1}`), "POST /v1/responses", `{"input":"Hi","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"patch"}]},"parallel_tool_calls":false` + responsesTools + `}`},
		{"responses-cut", cutShort("Hi"), "POST /v1/responses", `{"input":"Hi","max_output_tokens":2}`},
		{"responses-busy", rejecting(engine.ErrBusy), "POST /v1/responses", `{"input":"Hi","stream":true}`},
		{"responses-failed-in-stream", breaks(fmt.Errorf("%w: layer 3", engine.ErrFailed)), "POST /v1/responses", `{"input":"Hi","stream":true}`},
		{"responses-previous", hello(), "POST /v1/responses", `{"input":"Hi","previous_response_id":"resp_1"}`},
	} {
		tt.check(t, func(*Config) {})
	}
}

// The items of a conversation become its turns, and what the server sealed comes back as
// reasoning.
func TestResponsesInput(t *testing.T) {
	e := answering("Hm.</think>Yes\n\n" + callText)
	h := New(testConfig(e))
	w := call(h, "POST", "/v1/responses", `{"input":"Hi","reasoning":{"effort":"low"}`+responsesTools+`}`)
	got := testenv.FromJSON[struct{ Output []json.RawMessage }](t, w.Body.Bytes())
	require.Len(t, got.Output, 4) // reasoning, message, two calls
	var items []string
	for _, item := range got.Output {
		items = append(items, string(item))
	}
	body := `{"input":[{"role":"developer","content":[{"type":"input_text","text":"D"}]},{"type":"message","role":"user","content":"Hi"},` + strings.Join(items, ",") +
		`,{"type":"function_call_output","call_id":"call_0123456789abcdef","output":"22"},{"type":"web_search_call","id":"x"},{"type":"function_call_output","call_id":"y","output":[{"type":"input_text","text":"30"}]}],"reasoning":{"effort":"low"}` + responsesTools + `}`
	require.Equal(t, 200, call(h, "POST", "/v1/responses", body).Code)
	prompt := withControls(e.last().Prompt)
	require.True(t, strings.HasPrefix(prompt, "<｜begin▁of▁sentence｜>D\n\n## Tools"), prompt)
	require.True(t, strings.HasSuffix(prompt, "<｜User｜>Hi<｜Assistant｜><think>Hm.</think>Yes\n\n"+callText+"<｜end▁of▁sentence｜><｜User｜><tool_result>22</tool_result>\n\n<tool_result>30</tool_result><｜Assistant｜><think>"), prompt)
}

// withControls is a prompt with its control tokens.
func withControls(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 256 {
			b.WriteByte(byte(id))
		} else {
			b.WriteString(apitest.Tokenizer{}.Text(id))
		}
	}
	return b.String()
}

func TestResponsesInvalid(t *testing.T) {
	e := answering("never")
	h := New(testConfig(e))
	for _, tt := range []struct{ body, param string }{
		{`{}`, "input"}, {`{"input":5}`, "input"}, {`{"input":[]}`, "input"}, {`{"input":[{"type":"item_reference","id":"x"}]}`, "input[0].type"},
		{`{"input":[{"role":"robot","content":"x"}]}`, "input[0].role"}, {`{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, "input[0].content[0].type"},
		{`{"input":"x","conversation":"c"}`, "conversation"}, {`{"input":"x","background":true}`, "background"}, {`{"input":"x","reasoning":{"effort":"x"}}`, "reasoning.effort"},
		{`{"input":"x","text":{"format":{"type":"xml"}}}`, "text.format.type"}, {`{"input":"x","text":{"format":{"type":"json_schema"}}}`, "text.format.schema"},
		{`{"input":"x","text":{"format":{"type":"json_schema","schema":{"not":{}}}}}`, "text.format.schema"}, {`{"input":"x","tools":[{"name":"f"}]}`, "tools[0].type"},
		{`{"input":"x","tools":[{"type":"function","name":"a b"}]}`, "tools[0].name"}, {`{"input":"x","tool_choice":"some"}`, "tool_choice"}, {`{"input":"x","tool_choice":{"type":"hosted"}}`, "tool_choice.type"},
		{`{"input":"x","tools":[{"type":"namespace","name":"a b","tools":[]}]}`, "tools[0].name"}, {`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"<"}]}]}`, "tools[0].tools[0].name"},
		{`{"input":[{"type":"function_call_output","output":"x"}]}`, "messages[0].role"}, {`{"input":"x","max_output_tokens":0}`, "max_output_tokens"},
	} {
		w := call(h, "POST", "/v1/responses", tt.body)
		require.Equal(t, 400, w.Code, tt.body)
		require.Equal(t, tt.param, value(errorOf(t, w).Param), "%s: %s", tt.body, w.Body)
	}
	require.Empty(t, e.submitted())
}

// FuzzResponses checks that any body gets an error object or a response, without a
// panic, and that the engine sees only valid requests.
func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"input":"Hi","instructions":"x","stream":true` + responsesTools + `}`, `{"input":[{"type":"reasoning","encrypted_content":"rm1.SG0u"},{"role":"assistant","content":"a"}],"reasoning":{"effort":"low"}}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"b"}]}`,
		`{"input":[{"type":"custom_tool_call","name":"f","input":"x"},{"type":"custom_tool_call_output","output":[{"type":"input_image"}]},{"type":"additional_tools","tools":[{"type":"custom","name":"g"}]}],"tool_choice":"required"}`,
		`{"input":"a","text":{"format":{"type":"json_schema","schema":{"type":"object"}}},"tool_choice":{"type":"allowed_tools","tools":[]},"max_output_tokens":1}`, `{}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := call(New(testConfig(checked(t))), "POST", "/v1/responses", string(body), "Content-Type", "application/json")
		if w.Code != http.StatusOK {
			require.Contains(t, []int{400, 404}, w.Code)
			errorOf(t, w)
			return
		}
		var last []byte
		for line := range strings.Lines(w.Body.String()) {
			data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
			if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") && !ok {
				require.True(t, data == "" || strings.HasPrefix(data, "event: "), line)
				continue
			}
			last = []byte(data)
			require.True(t, json.Valid(last), line)
		}
		require.Contains(t, string(last), `"status":"completed"`)
		require.Contains(t, string(last), `"total_tokens":`)
	})
}
