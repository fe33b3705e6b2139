package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// show returns the definition of a function as one line of JSON: as the client wrote it,
// or reduced to name, description and parameters.
func (f *Function) show(reduced bool) string {
	if f.Raw != nil && !reduced {
		return dump(f.Raw)
	}
	return `{"name": ` + quoted(f.Name) + `, "description": ` + quoted(f.Description) + `, "parameters": ` + f.parameters() + "}"
}

// showWithout is show without some members of the client's definition.
func (f *Function) showWithout(names ...string) string {
	list, ok := members(f.Raw)
	if !ok {
		return f.show(false)
	}
	var parts []string
	for _, m := range list {
		if !slices.Contains(names, m.key) {
			parts = append(parts, quoted(m.key)+": "+dump(m.value))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// wrapped returns show as an element of a list of tools.
func (f *Function) wrapped() string {
	return `{"type": "function", "function": ` + f.show(false) + "}"
}

// parameters returns the schema of the arguments.
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

// responseFormat returns the schema of the answer with the text that introduces it.
func responseFormat(schema json.RawMessage) string {
	return "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" + dump(schema)
}
