package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/internal/testenv"
)

// invoke is the markup of one call, with arguments that are JSON values.
func invoke(name string, arguments ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=%q>\n", name)
	for i := 0; i < len(arguments); i += 2 {
		text, isText := strings.CutPrefix(arguments[i+1], "=")
		fmt.Fprintf(&b, "<｜DSML｜parameter name=%q string=\"%t\">%s</｜DSML｜parameter>\n", arguments[i], isText, text)
	}
	return b.String() + "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
}

const namespaces = `{"type":"namespace","name":"mcp__weather","description":"Weather of all places.","tools":[{"type":"function","name":"get","description":"Gets it.","parameters":{"type":"object","properties":{"place":{"type":"string"}}}},{"type":"custom","name":"note"}]},{"type":"namespace","name":"mcp__sea__","tools":[{"type":"function","name":"get"}]},{"type":"function","name":"get"}`

// Every tool that the client of the Responses API runs is offered to the model. A call
// has the item type of its tool, as a whole and in a stream; when it comes back with its
// result, the prompt has what the model wrote.
func TestResponsesClientTools(t *testing.T) {
	search := `{"type":"tool_search","execution":"client","description":"Finds tools.","parameters":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}`
	for _, tt := range []struct{ name, tools, markup, item, output, result string }{
		{"function of a namespace", namespaces, invoke("mcp__weather__get", "place", "=Paris"),
			`{"type":"function_call","namespace":"mcp__weather","name":"get","arguments":"{\"place\": \"Paris\"}"}`, `{"type":"function_call_output","output":"22"}`, "22"},
		{"namespace with underscores", namespaces, invoke("mcp__sea__get"), `{"type":"function_call","namespace":"mcp__sea__","name":"get","arguments":"{}"}`, `{"type":"function_call_output","output":"9"}`, "9"},
		{"same name without namespace", namespaces, invoke("get"), `{"type":"function_call","name":"get","arguments":"{}"}`, `{"type":"function_call_output","output":"8"}`, "8"},
		{"custom tool of a namespace", namespaces, invoke("mcp__weather__note", "input", "=a b"), `{"type":"custom_tool_call","namespace":"mcp__weather","name":"note","input":"a b"}`, `{"type":"custom_tool_call_output","output":"ok"}`, "ok"},
		{"local_shell", `{"type":"local_shell"}`, invoke("local_shell", "command", `["ls", "-l"]`, "working_directory", "=/tmp"),
			`{"type":"local_shell_call","action":{"type":"exec","env":{},"command":["ls","-l"],"working_directory":"/tmp"}}`, `{"type":"local_shell_call_output","output":"a"}`, "a"},
		{"shell", `{"type":"shell","environment":{"type":"local"}}`, invoke("shell", "commands", `["ls"]`, "timeout_ms", "5"), `{"type":"shell_call","action":{"commands":["ls"],"timeout_ms":5}}`,
			`{"type":"shell_call_output","output":[{"stdout":"a","stderr":"b","outcome":{"type":"exit","exit_code":2}},{"stdout":"","stderr":"","outcome":{"type":"timeout"}}]}`, "ab\n[exit code 2]\n\n[timed out]"},
		{"apply_patch", `{"type":"apply_patch"}`, invoke("apply_patch", "type", "=update_file", "path", "=a.txt", "diff", "=@@\n-a\n+b"),
			`{"type":"apply_patch_call","operation":{"type":"update_file","path":"a.txt","diff":"@@\n-a\n+b"}}`, `{"type":"apply_patch_call_output","status":"failed","output":"no such line"}`, "Failed: no such line"},
		{"tool_search", search, invoke("tool_search", "query", "=rain"), `{"type":"tool_search_call","execution":"client","arguments":{"query":"rain"}}`,
			`{"type":"tool_search_output","execution":"client","tools":[` + namespaces + `]}`, "These tools can be called now: mcp__weather__get, mcp__weather__note, mcp__sea__get, get"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := answering("I look.\n\n" + tt.markup)
			c, log := logging(e)
			h := New(c)
			w := call(h, "POST", "/v1/responses", `{"input":"Hi","tools":[`+tt.tools+`]}`)
			require.Equal(t, 200, w.Code, w.Body)
			require.NotContains(t, log.String(), "dropped")
			got := testenv.FromJSON[struct{ Output, Tools []json.RawMessage }](t, w.Body.Bytes())
			require.Len(t, got.Output, 2, w.Body)
			require.JSONEq(t, tt.item, without(t, got.Output[1], "id", "call_id", "status"))
			offered, err := json.Marshal(got.Tools)
			require.NoError(t, err)
			require.Equal(t, strings.Count(tt.tools, `"type":"namespace"`), strings.Count(string(offered), `"type":"namespace"`), "%s", offered)

			streamed := call(h, "POST", "/v1/responses", `{"input":"Hi","stream":true,"tools":[`+tt.tools+`]}`).Body.String()
			added, done := "", ""
			for line := range strings.Lines(streamed) {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					v := testenv.FromJSON[struct {
						Type string
						Item json.RawMessage
					}](t, []byte(data))
					switch v.Type {
					case "response.output_item.added":
						added = string(v.Item)
					case "response.output_item.done":
						done = string(v.Item)
					}
				}
			}
			require.JSONEq(t, tt.item, without(t, []byte(done), "id", "call_id", "status"))
			require.Equal(t, testenv.FromJSON[struct{ Type string }](t, []byte(tt.item)).Type, testenv.FromJSON[struct{ Type string }](t, []byte(added)).Type)

			output := strings.Replace(tt.output, "{", `{"call_id":"call_0123456789abcdef",`, 1)
			body := `{"input":[{"role":"user","content":"Hi"},` + string(got.Output[0]) + `,` + string(got.Output[1]) + `,` + output + `],"tools":[` + tt.tools + `]}`
			w = call(h, "POST", "/v1/responses", body)
			require.Equal(t, 200, w.Code, w.Body)
			prompt := withControls(e.last().Prompt)
			require.Contains(t, prompt, "I look.\n\n"+tt.markup+"<｜end▁of▁sentence｜><｜User｜><tool_result>"+tt.result+"</tool_result>", prompt)
			if strings.Contains(tt.tools, "mcp__weather") {
				require.Contains(t, prompt, "mcp__weather: Weather of all places.")
			}
		})
	}
}

// without is a JSON object without some members.
func without(t *testing.T, object []byte, names ...string) string {
	m := testenv.FromJSON[map[string]json.RawMessage](t, object)
	for _, name := range names {
		require.NotEmpty(t, m[name], "%s of %s", name, object)
		delete(m, name)
	}
	out, err := json.Marshal(m)
	require.NoError(t, err)
	return string(out)
}

// A choice names a tool of a namespace with or without the namespace, all of a namespace,
// or a tool without a name.
func TestResponsesChoiceOfClientTools(t *testing.T) {
	for _, tt := range []struct{ choice, offered string }{
		{`{"type":"function","namespace":"mcp__sea__","name":"get"}`, "mcp__sea__get"}, {`{"type":"custom","name":"note"}`, "mcp__weather__note"}, {`{"type":"function","name":"get"}`, "get"},
		{`{"type":"shell"}`, "shell"}, {`{"type":"allowed_tools","tools":[{"type":"namespace","name":"mcp__weather"},{"type":"shell"}]}`, "mcp__weather__get mcp__weather__note shell"},
	} {
		e := answering("ok")
		w := call(New(testConfig(e)), "POST", "/v1/responses", `{"input":"Hi","tools":[`+namespaces+`,{"type":"shell"}],"tool_choice":`+tt.choice+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		prompt, found := withControls(e.last().Prompt), []string{}
		for _, name := range []string{"mcp__weather__get", "mcp__weather__note", "mcp__sea__get", "get", "shell"} {
			if strings.Contains(prompt, `{"name": "`+name+`"`) {
				found = append(found, name)
			}
		}
		require.Equal(t, tt.offered, strings.Join(found, " "), tt.choice)
	}
	for _, choice := range []string{`{"type":"apply_patch"}`, `{"type":"function","name":"none"}`, `{"type":"allowed_tools","tools":[{"type":"namespace","name":"none"}]}`} {
		w := call(New(testConfig(answering("never"))), "POST", "/v1/responses", `{"input":"Hi","tools":[`+namespaces+`],"tool_choice":`+choice+`}`)
		require.Equal(t, 400, w.Code, w.Body)
	}
}

// The tools that clients of the Messages API run without a schema are offered, each with
// the members of its date.
func TestAnthropicClientTools(t *testing.T) {
	for _, tt := range []struct{ tool, has, hasNot string }{
		{`{"type":"bash_20250124","name":"bash"}`, `"restart"`, "undo_edit"}, {`{"type":"bash_20241022","name":"bash"}`, `"command"`, "undo_edit"},
		{`{"type":"text_editor_20241022","name":"str_replace_editor"}`, "undo_edit", "insert_text"}, {`{"type":"text_editor_20250429","name":"str_replace_based_edit_tool"}`, "view_range", "undo_edit"},
		{`{"type":"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":100}`, "insert_text", "undo_edit"}, {`{"type":"memory_20250818","name":"memory"}`, "new_path", "undo_edit"},
		{`{"type":"some_20270101","name":"some","input_schema":{"type":"object","properties":{"mine":{}}}}`, `"mine"`, "undo_edit"},
	} {
		e := answering("ok")
		c, log := logging(e)
		w := call(New(c), "POST", "/v1/messages", `{`+user+`,"tools":[`+tt.tool+`]}`)
		require.Equal(t, 200, w.Code, w.Body)
		prompt := withControls(e.last().Prompt)
		require.Contains(t, prompt, tt.has, tt.tool)
		require.NotContains(t, prompt, tt.hasNot, tt.tool)
		require.NotContains(t, log.String(), "dropped")
	}
	markup := invoke("bash", "command", "=ls")
	w := call(New(testConfig(answering(markup))), "POST", "/v1/messages", `{`+user+`,"tools":[{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"tool","name":"bash"}}`)
	require.Contains(t, w.Body.String(), `"type":"tool_use","id":"toolu_0123456789abcdef","name":"bash","input":{"command":"ls"}`)
}

// With max_tokens 0 the prompt is computed and the answer is empty; output_format, the
// older name of output_config.format, holds the answer to its schema.
func TestAnthropicEmptyAndFormat(t *testing.T) {
	e := answering("Hello")
	h := New(testConfig(e))
	w := call(h, "POST", "/v1/messages", `{`+user+`,"max_tokens":0}`)
	require.Contains(t, w.Body.String(), `"content":[],"stop_reason":"max_tokens","stop_sequence":null,`)
	require.Contains(t, w.Body.String(), `"output_tokens":0`)
	require.Equal(t, 1, e.last().MaxTokens)
	w = call(h, "POST", "/v1/messages", `{`+user+`,"max_tokens":0,"stream":true}`)
	require.NotContains(t, w.Body.String(), "content_block")
	require.Contains(t, w.Body.String(), `"stop_reason":"max_tokens"`)
	for _, field := range []string{`"output_format":{"type":"json_schema","schema":{"type":"object","properties":{"a":{"const":1}}}}`, `"output_config":{"format":{"type":"json_schema","schema":{"type":"object","properties":{"a":{"const":1}}}}}`} {
		require.Equal(t, 200, call(h, "POST", "/v1/messages", `{`+user+`,`+field+`}`).Code)
		require.NotNil(t, e.last().Constraint, field)
		require.Contains(t, withControls(e.last().Prompt), `"const": 1`, field)
	}
}

// A call in the history without a name that a tool can have does not end the
// conversation, in any dialect.
func TestNamelessCalls(t *testing.T) {
	for _, name := range []string{"", "get weather", "<｜User｜>", strings.Repeat("é", 1000)} {
		quoted := string(dialect.Marshal(name))
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":` + quoted + `,"arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"no such tool"}]`,
			"/v1/responses":        `{"input":[{"role":"user","content":"Hi"},{"type":"function_call","call_id":"1","name":` + quoted + `,"arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"no such tool"}]`,
			"/v1/messages":         `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":` + quoted + `,"input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"no such tool"}]}]`,
			"/api/chat":            `{"stream":false,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":` + quoted + `,"arguments":{}}}]},{"role":"tool","tool_call_id":"1","content":"no such tool"}]`,
		} {
			e := answering("ok")
			w := call(New(testConfig(e)), "POST", path, body+`}`)
			require.Equal(t, 200, w.Code, w.Body)
			prompt := withControls(e.last().Prompt)
			require.Contains(t, prompt, "no such tool")
			require.Equal(t, 1, strings.Count(prompt, "<｜User｜>Hi"), prompt)
			require.Regexp(t, `invoke name="[A-Za-z0-9_]{1,64}">`, prompt)
		}
	}
}

// Names of tools in namespaces that are too long for the model, or that another tool has,
// are shortened alike in every request. Calls come back with the client's names, and what
// the client says of them leads to the same tool.
func TestResponsesShortenedNames(t *testing.T) {
	long := "mcp__" + strings.Repeat("n", 100)
	function := func(name string) string {
		return `{"type":"function","name":"` + name + `","description":"Of ` + name + `."}`
	}
	tools := `{"type":"namespace","name":"` + long + `","tools":[` + function("get_the_weather_of_a_place_x") + `,` + function("get_the_weather_of_a_place_y") + `]},` +
		function("a__b") + `,{"type":"namespace","name":"a","tools":[` + function("b") + `]},{"type":"namespace","name":"a__","tools":[` + function("b") + `]}`
	names := map[string]bool{}
	for _, tt := range []struct{ namespace, name, begins string }{
		{long, "get_the_weather_of_a_place_x", "mcp__nnn"}, {long, "get_the_weather_of_a_place_y", "mcp__nnn"}, {"", "a__b", "a__b"}, {"a", "b", "a__b_"}, {"a__", "b", "a__b_"},
	} {
		choice := `"tool_choice":{"type":"function","namespace":"` + tt.namespace + `","name":"` + tt.name + `"}`
		e := answering("ok")
		w := call(New(testConfig(e)), "POST", "/v1/responses", `{"input":"Hi","tools":[`+tools+`],`+choice+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		_, rest, found := strings.Cut(withControls(e.last().Prompt), `{"name": "`)
		require.True(t, found)
		name, _, _ := strings.Cut(rest, `"`)
		require.True(t, strings.HasPrefix(name, tt.begins), name)
		require.LessOrEqual(t, len(name), 64)
		require.False(t, names[name], name)
		names[name] = true

		e = answering(invoke(name))
		item := `{"type":"function_call","name":"` + tt.name + `","arguments":"{}"` + map[bool]string{false: `,"namespace":"` + tt.namespace + `"`}[tt.namespace == ""] + `}`
		history := `{"input":[{"role":"user","content":"Hi"},` + strings.Replace(item, "{", `{"call_id":"1",`, 1) + `,{"type":"function_call_output","call_id":"1","output":"22"}],"tools":[` + tools + `]}`
		w = call(New(testConfig(e)), "POST", "/v1/responses", history)
		require.Equal(t, 200, w.Code, w.Body)
		require.Contains(t, withControls(e.last().Prompt), `invoke name="`+name+`"`)
		got := testenv.FromJSON[struct{ Output []json.RawMessage }](t, w.Body.Bytes())
		require.JSONEq(t, item, without(t, got.Output[0], "id", "call_id", "status"))
	}
}

// A tool that an item offers again stays what it was, and a namespace is listed once, with
// the tools that came later.
func TestResponsesToolsOfferedTwice(t *testing.T) {
	e := answering(invoke("note", "input", "=x"))
	sea := func(name string) string {
		return `{"type":"namespace","name":"sea","tools":[{"type":"function","name":"` + name + `"}]}`
	}
	w := call(New(testConfig(e)), "POST", "/v1/responses", `{"input":[{"role":"user","content":"Hi"},
		{"type":"additional_tools","tools":[{"type":"function","name":"note"},`+sea("get")+`,`+sea("depth")+`]}],"tools":[{"type":"custom","name":"note"},`+sea("get")+`]}`)
	require.Equal(t, 200, w.Code, w.Body)
	got := testenv.FromJSON[struct {
		Output []struct{ Type string }
		Tools  []struct {
			Type, Name string
			Tools      []struct{ Name string }
		}
	}](t, w.Body.Bytes())
	require.Equal(t, "custom_tool_call", got.Output[0].Type)
	require.Len(t, got.Tools, 2, w.Body)
	require.Equal(t, []struct{ Name string }{{"get"}, {"depth"}}, got.Tools[1].Tools)
	for _, name := range []string{"note", "sea__get", "sea__depth"} {
		require.Equal(t, 1, strings.Count(withControls(e.last().Prompt), `{"name": "`+name+`"`), name)
	}
}
