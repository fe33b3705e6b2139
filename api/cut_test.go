package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// A call that is cut off anywhere by the length of the answer never looks like a call
// without arguments: a client sees arguments that are not JSON yet, or nothing.
func TestCutCalls(t *testing.T) {
	testenv.Need(t, testenv.Full, "calls cut off by the limit of tokens")
	whole := []string{`{"place": "Paris"}`, `{"place": "Rome", "days": 2}`}
	for _, d := range []struct {
		name, path, body string
		arguments        func(t *testing.T, body string) []string
	}{
		{"chat", "/v1/chat/completions", `{` + user + tools + `}`, chatArguments},
		{"chat stream", "/v1/chat/completions", `{` + user + tools + `,"stream":true}`, chatArguments},
		{"messages", "/v1/messages", `{"max_tokens":64,` + user + anthropicTools + `}`, messagesArguments},
		{"messages stream", "/v1/messages", `{"max_tokens":64,` + user + anthropicTools + `,"stream":true}`, messagesArguments},
		{"responses", "/v1/responses", `{"input":"Hi"` + responsesTools + `}`, responsesArguments},
		{"responses stream", "/v1/responses", `{"input":"Hi"` + responsesTools + `,"stream":true}`, responsesArguments},
		{"ollama", "/api/chat", `{` + user + tools + `,"stream":false}`, ollamaArguments},
		{"ollama stream", "/api/chat", `{` + user + tools + `}`, ollamaArguments},
	} {
		t.Run(d.name, func(t *testing.T) {
			for cut := range len(callText) {
				w := call(New(testConfig(cutShort("Hi\n\n"+callText[:cut]))), "POST", d.path, d.body)
				require.Equal(t, 200, w.Code, w.Body)
				got := d.arguments(t, w.Body.String())
				for i, arguments := range got {
					if ended := strings.Count(callText[:cut], "</｜DSML｜invoke>"); i < ended {
						require.JSONEq(t, whole[i], arguments)
						continue
					}
					require.NotEmpty(t, arguments, "cut at %d", cut)
					require.False(t, json.Valid([]byte(arguments)), "cut at %d: %s", cut, arguments)
				}
			}
		})
	}
}

// lines gives the JSON of the events of a stream, or of the only answer.
func lines(t *testing.T, body string) (out []json.RawMessage) {
	for line := range strings.Lines(body) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if strings.HasPrefix(line, "{") {
			require.True(t, json.Valid([]byte(line)), line)
			out = append(out, json.RawMessage(line))
		}
	}
	require.NotEmpty(t, out)
	return out
}

func chatArguments(t *testing.T, body string) (out []string) {
	type calls []struct {
		Index    int
		Function struct{ Arguments string }
	}
	for _, line := range lines(t, body) {
		var v struct {
			Choices []struct {
				Message, Delta struct {
					Calls calls `json:"tool_calls"`
				}
			}
		}
		require.NoError(t, json.Unmarshal(line, &v))
		for _, c := range v.Choices {
			for i, call := range c.Message.Calls {
				require.Len(t, out, i)
				out = append(out, call.Function.Arguments)
			}
			for _, call := range c.Delta.Calls {
				if call.Index == len(out) {
					out = append(out, "")
				}
				out[call.Index] += call.Function.Arguments
			}
		}
	}
	return out
}

func messagesArguments(t *testing.T, body string) (out []string) {
	for _, line := range lines(t, body) {
		var v struct {
			Content []struct {
				Type  string
				Input json.RawMessage
			}
			Block struct{ Type string } `json:"content_block"`
			Delta struct {
				Partial string `json:"partial_json"`
			}
		}
		require.NoError(t, json.Unmarshal(line, &v))
		for _, b := range v.Content {
			if b.Type == "tool_use" {
				out = append(out, string(b.Input))
			}
		}
		if v.Block.Type == "tool_use" {
			out = append(out, "")
		}
		if v.Delta.Partial != "" {
			out[len(out)-1] += v.Delta.Partial
		}
	}
	return out
}

func responsesArguments(t *testing.T, body string) (out []string) {
	for _, line := range lines(t, body) {
		var v struct {
			Type   string
			Output []struct{ Type, Arguments string }
			Item   struct{ Type, Arguments string }
		}
		require.NoError(t, json.Unmarshal(line, &v))
		for _, i := range v.Output {
			if i.Type == "function_call" {
				out = append(out, i.Arguments)
			}
		}
		if v.Type == "response.output_item.done" && v.Item.Type == "function_call" { // what clients run
			out = append(out, v.Item.Arguments)
		}
	}
	return out
}

func ollamaArguments(t *testing.T, body string) (out []string) {
	for _, line := range lines(t, body) {
		var v struct {
			Message struct {
				Calls []struct {
					Function struct{ Arguments json.RawMessage }
				} `json:"tool_calls"`
			}
		}
		require.NoError(t, json.Unmarshal(line, &v))
		for _, c := range v.Message.Calls {
			out = append(out, string(c.Function.Arguments))
		}
	}
	return out
}
