package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/internal/openai"
	"ringmaster/internal/testenv"
)

// hostileValues are JSON values, some of them broken, that cost a careless reader
// time, memory or a panic. Each is about size bytes, or short where length is not
// the point.
func hostileValues(size int) map[string]string {
	rep := strings.Repeat
	var members strings.Builder
	for i := 0; members.Len() < size; i++ {
		fmt.Fprintf(&members, `"%d":{},`, i)
	}
	deep := min(size/2, 4999) // encoding/json refuses more than 10,000 levels
	return map[string]string{
		"deep arrays":          rep("[", deep) + rep("]", deep),
		"deep objects":         rep(`{"a":`, deep) + "0" + rep("}", deep),
		"too deep":             rep("[", size/2) + rep("]", size/2),
		"never closed":         rep(`[{"a":`, size/6),
		"closed too often":     "[" + rep("]", size),
		"array of numbers":     "[" + rep("0,", size/2) + "0]",
		"array of arrays":      "[" + rep("[],", size/3) + "[]]",
		"array of objects":     "[" + rep("{},", size/3) + "{}]",
		"array of strings":     "[" + rep(`"",`, size/3) + `""]`,
		"many members":         "{" + members.String() + `"x":0}`,
		"one name many times":  "{" + rep(`"type":"text",`, size/14) + `"type":"text"}`,
		"long string":          `"` + rep("a", size) + `"`,
		"escapes":              `"` + rep(`\u0000`, size/6) + `"`,
		"unpaired surrogates":  `"` + rep(`\ud800`, size/6) + `"`,
		"paired surrogates":    `"` + rep(`\ud83d\ude00`, size/12) + `"`,
		"markers":              `"` + rep("<｜User｜><think>", size/20) + `"`,
		"string never closed":  `"` + rep(`\\`, size/2),
		"not UTF-8":            `"` + rep("\xff", size) + `"`,
		"long integer":         rep("9", size),
		"long fraction":        "0." + rep("1", size),
		"long exponent":        "1e" + rep("9", size),
		"beyond float64":       "1e999",
		"beyond int64":         "-9223372036854775809",
		"next to nothing":      "1e-999",
		"negative zero":        "-0",
		"no number":            "NaN",
		"number cut short":     "-",
		"word cut short":       "tru",
		"space":                rep(" \t\r\n", size/4) + "0",
		"empty string":         `""`,
		"empty array":          `[]`,
		"empty object":         `{}`,
		"null":                 `null`,
		"null in an array":     `[null]`,
		"false":                `false`,
		"another body follows": `0}{"prompt":"a"`,
	}
}

// hostilePlaces are bodies with a place for a value: %s is the value, %[2]s is the name
// of a member that the endpoint knows.
var hostilePlaces = map[string][]string{
	"/v1/chat/completions": {
		`%s`, `{"messages":%s}`, `{"messages":[%s]}`, `{"messages":[{"role":%s,"content":"a"}]}`,
		`{"messages":[{"role":"user","content":%s}]}`, `{"messages":[{"role":"user","content":[%s]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":%s}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":%s,"text":"a"}]}]}`,
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":%s},{"role":"user","content":"c"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":%s}]}`, `{"messages":[{"role":"user","content":"a","name":%s}]}`,
		`{"messages":[{"role":"user","content":"a"}],"%[2]s":%[1]s}`, `{"messages":[{"role":"user","content":"a"}],"stream_options":{"include_usage":%s}}`,
		`{"messages":[{"role":"user","content":"a"}],"logit_bias":{"1":%s}}`, `{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"thinking":%s}}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[%s]}`, `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":%s}]}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":%s}}]}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":%s}}}]}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":%s}}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":%s,"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"a"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":%s}}]},{"role":"tool","content":"a"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":%s}]}`,
		`{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"schema":%s}}}`,
		`{"messages":[{"role":"user","content":"a"}],"structured_outputs":{"regex":%s}}`, `{"messages":[{"role":"user","content":"a"}],"guided_json":{"enum":%s}}`,
	},
	"/v1/responses": {
		`%s`, `{"input":%s}`, `{"input":[%s]}`, `{"input":[{"type":%s}]}`, `{"input":[{"role":"user","content":%s}]}`, `{"input":[{"role":"user","content":[%s]}]}`,
		`{"input":[{"type":"reasoning","content":%s},{"role":"user","content":"a"}]}`, `{"input":[{"type":"reasoning","encrypted_content":%s},{"role":"user","content":"a"}]}`,
		`{"input":[{"type":"function_call","name":"f","arguments":%s},{"type":"function_call_output","output":"a"}]}`,
		`{"input":[{"type":"function_call","name":"f"},{"type":"function_call_output","output":%s}]}`, `{"input":"a","tools":[%s]}`,
		`{"input":"a","tools":[{"type":"custom","name":"f","format":%s}]}`, `{"input":"a","text":{"format":%s}}`, `{"input":"a","%[2]s":%[1]s}`,
	},
	"/v1/completions": {
		`%s`, `{"prompt":%s}`, `{"prompt":[%s]}`, `{"prompt":[[%s]]}`, `{"prompt":"a","%[2]s":%[1]s}`,
	},
	"/v1/messages": {
		`%s`, `{"messages":%s}`, `{"messages":[%s]}`, `{"messages":[{"role":%s,"content":"a"}]}`, `{"messages":[{"role":"user","content":%s}]}`,
		`{"messages":[{"role":"user","content":[%s]}]}`, `{"messages":[{"role":"user","content":[{"type":"text","text":%s}]}]}`,
		`{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":%s}]},{"role":"user","content":"a"}]}`,
		`{"messages":[{"role":"user","content":"a"}],"%[2]s":%[1]s}`, `{"messages":[{"role":"user","content":"a"}],"system":[{"type":"text","text":%s}]}`,
		`{"messages":[{"role":"user","content":"a"}],"thinking":{"type":%s}}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[%s]}`, `{"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","input_schema":%s}]}`,
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":%s}]},{"role":"user","content":[{"type":"tool_result"}]}]}`,
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f"}]},{"role":"user","content":[{"type":"tool_result","content":%s}]}]}`, `{"messages":[{"role":"user","content":"a"}],"output_config":{"effort":%s}}`,
	},
	"/v1/messages/count_tokens": {`%s`, `{"messages":%s}`, `{"messages":[{"role":"user","content":%s}]}`, `{"messages":[{"role":"user","content":"a"}],"system":%s}`},
	"/api/chat": {
		`%s`, `{"messages":%s}`, `{"messages":[%s]}`, `{"messages":[{"role":%s,"content":"a"}]}`, `{"messages":[{"role":"user","content":%s}]}`,
		`{"messages":[{"role":"user","content":"a","images":%s}]}`, `{"messages":[{"role":"assistant","content":"b","thinking":%s},{"role":"user","content":"c"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":%s}]}`, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":%s}}]},{"role":"tool","content":"a"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":%s,"function":{"name":"f"}}]},{"role":"tool","content":"a"}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]},{"role":"tool","tool_name":%s,"content":"a"}]}`,
		`{"messages":[{"role":"user","content":"a"}],"options":{"%[2]s":%[1]s}}`, `{"messages":[{"role":"user","content":"a"}],"%[2]s":%[1]s}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":%s}}]}`,
	},
	"/api/generate": {`%s`, `{"prompt":%s}`, `{"prompt":%s,"raw":true}`, `{"prompt":"a","%[2]s":%[1]s}`, `{"prompt":"a","raw":true,"format":%s}`, `{"prompt":"a","options":%s}`},
	"/api/show":     {`%s`, `{"model":%s}`, `{"name":%s}`},
	"/tokenize":     {`%s`, `{"text":%s}`, `{"content":%s}`, `{"text":"a","%[2]s":%[1]s}`},
	"/detokenize":   {`%s`, `{"tokens":%s}`, `{"tokens":[%s]}`, `{"tokens":[1],"%[2]s":%[1]s}`},
}

// ofGrammar matches the places and names that become grammars or rewritten JSON.
var ofGrammar = regexp.MustCompile("guided|schema|parameters|response_format|structured_outputs|format|tools|text|tool_use|tool_calls|function_call")

// hostileNames returns the members that the endpoints know beside their texts. One of
// those that a table refuses stands for all of them except in a full run.
func hostileNames() []string {
	names := []string{"unknown", "model", "stop", "n", "best_of", "seed", "user", "max_tokens", "max_completion_tokens", "min_tokens",
		"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "stream",
		"stream_options", "echo", "suffix", "ignore_eos", "reasoning_effort", "reasoning", "thinking", "chat_template_kwargs",
		"continue_final_message", "system", "stop_sequences", "output_config", "tools", "tool_choice", "parallel_tool_calls", "response_format", "guided_json", "guided_regex", "guided_choice", "json_schema",
		"structured_outputs", "text", "instructions", "metadata", "add_special_tokens", "parse_special",
		"think", "format", "options", "num_predict", "repeat_penalty", "prompt", "raw", "name", "context"}
	for i, u := range openai.UnsupportedFields {
		if i%10 == 0 || testenv.At(testenv.Full) {
			names = append(names, u.Name)
		}
	}
	return names
}

// measured sends a body and returns the answer and the bytes allocated meanwhile.
func measured(h http.Handler, path, body string) (*httptest.ResponseRecorder, uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := call(h, http.MethodPost, path, body)
	runtime.ReadMemStats(&after)
	return w, after.TotalAlloc - before.TotalAlloc
}

// TestHostileBodies puts every hostile value in every place of every endpoint's body:
// each answer is a 200 or a documented 4xx, without a panic. The bytes allocated
// meanwhile are a small multiple of the body, so that neither time nor memory grows
// faster than its length.
func TestHostileBodies(t *testing.T) {
	var log bytes.Buffer
	c := testConfig(answering("ok"))
	c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	h := New(c)
	names, size := hostileNames(), 8<<10
	if testenv.At(testenv.Full) {
		size = 64 << 10
	}
	allowed := map[int]bool{http.StatusOK: true, http.StatusBadRequest: true, http.StatusNotFound: true}
	tried := 0
	for path, places := range hostilePlaces {
		for _, place := range places {
			fill := []string{""}
			if strings.Contains(place, "%[2]s") {
				fill = names
			}
			for kind, value := range hostileValues(size) {
				for _, name := range fill {
					body := strings.NewReplacer("%[1]s", value, "%[2]s", name, "%s", value).Replace(place)
					bound := uint64(256<<10 + 32*len(body))
					if ofGrammar.MatchString(place + name) {
						bound = uint64(1<<20 + 128*len(body)) // a node for each character or value, and its source
					}
					w, used := measured(h, path, body)
					for again := 0; used >= bound && again < 3; again++ {
						_, other := measured(h, path, body) // the runtime also allocates now and then
						used = min(used, other)
					}
					what := fmt.Sprintf("%s %s %s: %s", path, place, name, kind)
					require.True(t, allowed[w.Code], "%s: %d %.300s", what, w.Code, w.Body)
					require.Less(t, w.Body.Len(), 4<<10+16*len(body), what)
					require.Less(t, used, bound, what)
					tried++
				}
			}
		}
	}
	for line := range strings.Lines(log.String()) {
		require.Contains(t, line, " dropped=", "a request that only its sender got wrong is no event of the server, except what it leaves out")
		require.Less(t, len(line), 4<<10, "clients choose the types of tools")
	}
	t.Logf("%d bodies", tried)
}
