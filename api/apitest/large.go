package apitest

import (
	"fmt"
	"strings"
)

// Large returns one request of exactly size bytes for each path, in every dialect, with
// 200 tools where the dialect has any. If shown, the whole text is in the prompt;
// otherwise at most one word is, except for Ollama because its clients cannot ask for
// that.
func Large(size int, shown bool) map[string]string {
	const count = 200
	list := func(item string) string {
		var b strings.Builder
		for i := range count {
			fmt.Fprintf(&b, item+",", i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	const (
		hi       = `"messages":[{"role":"user","content":"Hi"}]`
		schema   = `{"type":"object","properties":{"path":{"type":"string","description":"%%s"},"deep":{"$ref":"#/$defs/d"}},"required":["path"],"$defs":{"d":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/d"}}]}}}`
		function = `{"type":"function","function":{"name":"tool_%d","description":"%%s","parameters":` + schema + `}}`
	)
	choice, anthropicChoice := `,"tool_choice":"none"`, `,"tool_choice":{"type":"none"}`
	if shown {
		choice, anthropicChoice = "", ""
	}
	bodies := map[string]string{
		"/v1/chat/completions":      `{` + hi + `,"max_tokens":5` + choice + `,"tools":[` + list(function) + `]}`,
		"/v1/responses":             `{"input":"Hi","max_output_tokens":5` + choice + `,"tools":[` + list(`{"type":"function","name":"tool_%d","description":"%%s","parameters":`+schema+`}`) + `]}`,
		"/v1/messages":              `{"max_tokens":5,` + hi + anthropicChoice + `,"tools":[` + list(`{"name":"tool_%d","description":"%%s","input_schema":`+schema+`}`) + `]}`,
		"/v1/messages/count_tokens": `{` + hi + anthropicChoice + `,"tools":[` + list(`{"name":"tool_%d","description":"%%s","input_schema":`+schema+`}`) + `]}`,
		"/api/chat":                 `{` + hi + `,"think":false,"tools":[` + list(function) + `]}`, // Ollama has no choice
		"/v1/completions":           `{"prompt":"Hi","max_tokens":5,"user":"%s"}`,
		"/api/generate":             `{"prompt":"Hi","keep_alive":"%s"}`,
	}
	if shown {
		bodies["/v1/completions"] = `{"max_tokens":5,"prompt":"%s"}`
		bodies["/api/generate"] = `{"prompt":"%s"}`
	}
	for path, body := range bodies {
		places := strings.Count(body, "%s")
		text := size - len(body) + 2*places
		each := text / places
		body = strings.Replace(body, "%s", strings.Repeat("é", (each+text%places)/2)+strings.Repeat("e", (each+text%places)%2), 1)
		bodies[path] = strings.ReplaceAll(body, "%s", strings.Repeat("a", each))
	}
	return bodies
}
