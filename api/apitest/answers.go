package apitest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// The parts that differ between two equal answers: ids, times, and what the prefix cache
// had.
var (
	answerIDs     = regexp.MustCompile(`\b(chatcmpl-|cmpl-|resp_|msg_|rs_|fc_|ctc_|call_|toolu_|rm_|fp_)[0-9a-f]+`)
	answerTimings = regexp.MustCompile(`,"timings":\{[^}]*\}`)
	answerMembers = regexp.MustCompile(`"(created|created_at|\w*_duration|cached_tokens|cache_read_input_tokens|prompt_cache_hit_tokens|prompt_cache_miss_tokens|input_tokens)":("[^"]*"|[0-9]+)`)
)

// streamTexts are the members of events that carry the text of an answer. Their
// boundaries depend on how fast the stream is read.
var streamTexts = map[string]bool{
	"content": true, "reasoning_content": true, "arguments": true, "text": true, "thinking": true, "delta": true, "partial_json": true,
	"name": true, "finish_reason": true, "stop_reason": true, "status": true, "done_reason": true, "response": true,
}

// Said returns what an answer says in any dialect, without its ids, its times and its
// hits in the prefix cache: the whole body, or for a stream each member's concatenated
// texts, as JSON.
func Said(answer string, stream bool) (string, error) {
	answer = answerTimings.ReplaceAllString(answer, "")
	answer = answerMembers.ReplaceAllString(answerIDs.ReplaceAllString(answer, "$1"), `"$1":0`)
	if !stream {
		return answer, nil
	}
	texts := map[string]string{}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				walk(name, member)
			}
		case []any:
			for _, item := range v {
				walk(name, item)
			}
		case string:
			if streamTexts[name] {
				texts[name] += v
			}
		}
	}
	for line := range strings.Lines(answer) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "data: "); !strings.HasPrefix(line, "{") {
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return "", fmt.Errorf("parsing a line of the stream: %w: %s", err, line)
		}
		if v["type"] != "response.in_progress" { // also sent as a keep-alive
			walk("", v)
		}
	}
	out, err := json.Marshal(texts)
	return string(out), err
}

// Mixed is one of many requests of all dialects, with tools, schemas, expressions,
// reasoning and history, whole and streamed, greedy. All of its texts contain a marker
// that no other request has: its instructions, the descriptions of its tools, its
// question, earlier answers, calls and results.
type Mixed struct {
	Path, Body, Marker string
	Stream             bool
}

// MarkerPattern matches every marker.
var MarkerPattern = regexp.MustCompile(`zq[0-9]{4}x`)

// NewMixed returns request number i; its answer has at most the given number of tokens.
// No two requests are alike. The kinds repeat after 18.
func NewMixed(i, tokens int) Mixed {
	m := Mixed{Marker: fmt.Sprintf("zq%04dx", i), Stream: (i+i/len(mixed))%3 != 0}
	kind := mixed[i%len(mixed)]
	m.Path = kind[0]
	m.Body = strings.TrimSuffix(strings.NewReplacer("MARK", m.Marker, "LIMIT", fmt.Sprint(tokens)).Replace(kind[1]), "}") + fmt.Sprintf(`,"stream":%v}`, m.Stream)
	return m
}

const (
	mixedSchema = `{"type":"object","properties":{"place":{"type":"string","description":"MARK","maxLength":12},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["place"],"additionalProperties":false}`
	mixedTools  = `[{"type":"function","function":{"name":"weather","description":"MARK","parameters":SCHEMA}}]`
)

var mixed = func() [][2]string {
	replace := strings.NewReplacer("TOOLS", strings.ReplaceAll(mixedTools, "SCHEMA", mixedSchema), "SCHEMA", mixedSchema)
	const (
		messages = `"temperature":0,"messages":[{"role":"system","content":"You know MARK."},{"role":"user","content":"Say MARK, please."}]`
		history  = `"temperature":0,"messages":[{"role":"user","content":"MARK?"},{"role":"assistant","content":"MARK","tool_calls":[{"id":"MARK","type":"function","function":{"name":"weather","arguments":"{\"place\":\"MARK\"}"}}]},{"role":"tool","tool_call_id":"MARK","content":"MARK"}]`
	)
	out := [][2]string{
		{"/v1/chat/completions", `{` + messages + `,"max_tokens":LIMIT}`},
		{"/v1/chat/completions", `{` + messages + `,"max_tokens":LIMIT,"tools":TOOLS,"tool_choice":"required","parallel_tool_calls":false}`},
		{"/v1/chat/completions", `{` + messages + `,"max_tokens":LIMIT,"tools":TOOLS,"reasoning_effort":"high","logprobs":true,"top_logprobs":2}`},
		{"/v1/chat/completions", `{` + history + `,"max_tokens":LIMIT,"tools":TOOLS}`},
		{"/v1/chat/completions", `{` + messages + `,"max_tokens":LIMIT,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":SCHEMA}}}`},
		{"/v1/chat/completions", `{` + messages + `,"max_tokens":LIMIT,"guided_regex":"([a-z0-9]{2,6}, ){2}[a-z]"}`},
		{"/v1/completions", `{"temperature":0,"prompt":"MARK is MARK is","max_tokens":LIMIT}`},
		{"/v1/completions", `{"temperature":0,"prompt":"MARK","max_tokens":LIMIT,"guided_choice":["red","green MARK"]}`},
		{"/v1/messages", `{` + strings.Replace(messages, "system", "user", 1) + `,"system":"MARK","max_tokens":LIMIT}`},
		{"/v1/messages", `{"temperature":0,"system":"MARK","messages":[{"role":"user","content":"Say MARK."}],"max_tokens":LIMIT,"tools":[{"name":"weather","description":"MARK","input_schema":SCHEMA}],"tool_choice":{"type":"any"}}`},
		{"/v1/messages", `{"temperature":0,"messages":[{"role":"user","content":"MARK?"},{"role":"assistant","content":[{"type":"thinking","thinking":"MARK","signature":"MARK"},{"type":"tool_use","id":"MARK","name":"weather","input":{"place":"MARK"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"MARK","content":"MARK"}]}],"max_tokens":LIMIT,"thinking":{"type":"enabled","budget_tokens":1024},"tools":[{"name":"weather","input_schema":SCHEMA}]}`},
		{"/v1/responses", `{"temperature":0,"instructions":"MARK","input":"Say MARK.","max_output_tokens":LIMIT}`},
		{"/v1/responses", `{"temperature":0,"input":[{"role":"user","content":"Say MARK."}],"max_output_tokens":LIMIT,"tools":[{"type":"function","name":"weather","description":"MARK","parameters":SCHEMA}],"tool_choice":"required","parallel_tool_calls":false}`},
		{"/v1/responses", `{"temperature":0,"input":[{"role":"user","content":"MARK?"},{"type":"reasoning","content":[{"type":"reasoning_text","text":"MARK"}]},{"type":"function_call","call_id":"MARK","name":"weather","arguments":"{\"place\":\"MARK\"}"},{"type":"function_call_output","call_id":"MARK","output":"MARK"}],"max_output_tokens":LIMIT,"reasoning":{"effort":"high"}}`},
		{"/v1/responses", `{"temperature":0,"input":"Say MARK.","max_output_tokens":LIMIT,"text":{"format":{"type":"json_schema","name":"n","schema":SCHEMA}}}`},
		{"/api/chat", `{"messages":[{"role":"system","content":"MARK"},{"role":"user","content":"Say MARK."}],"options":{"temperature":0,"num_predict":LIMIT},"think":false,"tools":TOOLS}`},
		{"/api/chat", `{"messages":[{"role":"user","content":"Say MARK."}],"options":{"temperature":0,"num_predict":LIMIT},"think":false,"format":SCHEMA}`},
		{"/api/generate", `{"prompt":"Say MARK.","system":"MARK","options":{"temperature":0,"num_predict":LIMIT},"think":true}`},
	}
	for i := range out {
		out[i][1] = replace.Replace(out[i][1])
	}
	return out
}()
