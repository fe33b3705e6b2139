package api

import (
	"encoding/json"
	"fmt"
	"strings"

	"ringmaster/model/prompt"
)

// thinking selects whether the model reasons before it answers.
type thinking struct {
	on     bool
	effort string // "": the model's default; else low, high or max
}

// efforts maps the values that clients send to those of the model, which has no
// medium: as in DeepSeek's own service the next higher one is used.
var efforts = map[string]string{
	"minimal": "low", "low": "low",
	"medium": "high", "high": "high",
	"xhigh": "max", "max": "max", "ultra": "max",
}

// parseMessages reads "messages", of which there may be a given number.
func parseMessages(f *fields, most int) []prompt.Message {
	if f.err == nil && !f.has("messages") {
		f.fail(invalid("messages", "missing_required_parameter", "'messages' is missing."))
	}
	list := f.list("messages", most)
	if f.err != nil {
		return nil
	}
	if len(list) == 0 {
		f.fail(invalid("messages", "invalid_value", "'messages' is empty; at least one message is required."))
		return nil
	}
	out := make([]prompt.Message, len(list))
	for i, raw := range list {
		if f.cancelled() {
			return nil
		}
		m := &fields{path: fmt.Sprintf("messages[%d].", i)}
		if kindOf(raw) != "object" {
			f.fail(invalid(strings.TrimSuffix(m.path, "."), "invalid_type", "'messages[%d]' must be an object, not %s.", i, article(kindOf(raw))))
			return nil
		}
		m.readMembers(raw, maxMembers)
		out[i] = parseMessage(m)
		if f.adopt(m); f.err != nil {
			return nil
		}
	}
	return out
}

func parseMessage(f *fields) prompt.Message {
	m := prompt.Message{Role: prompt.Role(f.str("role", ""))}
	param := f.path + "role"
	switch m.Role {
	case prompt.System, prompt.Developer, prompt.User, prompt.LatestReminder:
		m.Content = content(f, true)
	case prompt.Assistant:
		for _, name := range []string{"tool_calls", "function_call", "audio"} {
			if v, _ := compact(f.raw[name]); f.has(name) && v != "[]" {
				f.fail(unsupported(f.path+name, "'%s' is not supported yet; leave it out.", f.path+name))
			}
		}
		m.Reasoning = f.str("reasoning_content", f.str("reasoning", ""))
		m.Content = content(f, false)
	case "tool", "function":
		f.fail(unsupported(param, "Messages with the role '%s' are not supported yet.", m.Role))
	case "":
		f.fail(invalid(param, "missing_required_parameter", "'%s' is missing.", param))
	default:
		f.fail(invalid(param, "invalid_value", "'%s' must be system, developer, user or assistant, not '%s'.", param, excerpt(json.RawMessage(m.Role))))
	}
	return m
}

// maxParts is the most parts of the content of a message.
const maxParts = 1024

// content reads a string, or a list of text parts, which are concatenated.
func content(f *fields, required bool) string {
	const name = "content"
	raw := f.get(name)
	if raw == nil {
		if required {
			f.fail(invalid(f.path+name, "missing_required_parameter", "'%s' is missing.", f.path+name))
		}
		return ""
	}
	switch kindOf(raw) {
	case "string":
		return text(raw)
	case "array":
		var out strings.Builder
		for i, item := range f.list(name, maxParts) {
			part := &fields{path: fmt.Sprintf("%s%s[%d].", f.path, name, i)}
			if kindOf(item) != "object" {
				f.fail(invalid(strings.TrimSuffix(part.path, "."), "invalid_type", "'%s%s[%d]' must be an object, not %s.", f.path, name, i, article(kindOf(item))))
				return ""
			}
			part.readMembers(item, maxMembers)
			switch kind := part.str("type", ""); {
			case part.err != nil:
			case kind != "text":
				part.fail(unsupported(part.path+"type", "Content parts of type '%s' are not supported; only 'text' is.", excerpt(json.RawMessage(kind))))
			case !part.has("text"):
				part.fail(invalid(part.path+"text", "missing_required_parameter", "'%s' is missing.", part.path+"text"))
			}
			out.WriteString(part.str("text", ""))
			if f.adopt(part); f.err != nil {
				return ""
			}
		}
		return out.String()
	}
	f.wrongType(name, "a string or an array of parts", raw)
	return ""
}

// parseContinueFinal reports whether the model is to continue the last message,
// the assistant's, instead of answering it. DeepSeek's API marks that message
// with "prefix": true; other servers have a field in the request.
func parseContinueFinal(f *fields, most int) bool {
	continueFinal := f.boolean("continue_final_message", false)
	list := f.list("messages", most)
	for i, raw := range list {
		m := &fields{path: fmt.Sprintf("messages[%d].", i)}
		m.readMembers(raw, maxMembers)
		if m.boolean("prefix", false) {
			if i < len(list)-1 {
				m.fail(invalid(m.path+"prefix", "invalid_value", "'%s' is only allowed on the last message.", m.path+"prefix"))
			}
			continueFinal = true
		}
		f.adopt(m)
	}
	return continueFinal
}

// parseThinking reads the different ways in which clients request reasoning. An
// explicit switch wins over the effort; an effort alone enables reasoning.
func parseThinking(f *fields) thinking {
	var t thinking
	effort := f.str("reasoning_effort", "")
	if r := f.object("reasoning"); f.has("reasoning") {
		effort = r.str("effort", effort)
		f.adopt(r)
	}
	template := f.object("chat_template_kwargs")
	effort = template.str("reasoning_effort", effort)
	if effort != "" && effort != "none" {
		known, ok := efforts[effort]
		if !ok {
			f.fail(invalid("reasoning_effort", "invalid_value",
				"'reasoning_effort' must be none, minimal, low, medium, high, xhigh or max, not '%s'.", excerpt(json.RawMessage(effort))))
		}
		t = thinking{on: true, effort: known}
	}
	t.on = template.boolean("enable_thinking", template.boolean("thinking", t.on))
	f.adopt(template)
	t.on = f.boolean("enable_thinking", t.on)
	if f.has("thinking") {
		o := f.object("thinking")
		switch kind := o.str("type", ""); kind {
		case "enabled":
			t.on = true
		case "disabled":
			t.on = false
		default:
			o.fail(invalid("thinking.type", "invalid_value", "'thinking.type' must be enabled or disabled, not '%s'.", excerpt(json.RawMessage(kind))))
		}
		f.adopt(o)
	}
	if !t.on {
		t.effort = ""
	}
	return t
}
