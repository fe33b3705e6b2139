package chat

import (
	"encoding/json"
	"strings"
)

// show is the definition of a function as one line of JSON: as the client wrote
// it, or reduced to name, description and parameters.
func (f *Function) show(reduced bool) string {
	if f.Raw != nil && !reduced {
		return dump(f.Raw)
	}
	var b strings.Builder
	b.WriteString(`{"name": `)
	quote(&b, f.Name)
	b.WriteString(`, "description": `)
	quote(&b, f.Description)
	b.WriteString(`, "parameters": ` + f.parameters() + "}")
	return b.String()
}

// parameters is the schema of the arguments.
func (f *Function) parameters() string {
	if f.Parameters == nil {
		return `{"type": "object", "properties": {}}`
	}
	return dump(f.Parameters)
}

// unquote decodes a JSON string.
func unquote(text string) (s string, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, `"`) || json.Unmarshal([]byte(text), &s) != nil {
		return "", false
	}
	return s, true
}
