package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// parseMessages reads "messages", at most the given number. With "prefix": true in the
// last one, as in DeepSeek's API, the model continues this message of the assistant
// instead of answering it.
func parseMessages(f *dialect.Fields, most int) (messages []chat.Message, continues bool) {
	f.Require("messages")
	f.EachObject("messages", most, func(i int, m *dialect.Fields) {
		if continues { // the message before says so
			at := fmt.Sprintf("messages[%d].prefix", i-1)
			f.Fail(dialect.Invalid(at, "invalid_value", "'%s' is only allowed on the last message.", at))
			return
		}
		messages = append(messages, parseMessage(m))
		continues = m.Bool("prefix", false)
	})
	if !f.Cancelled() && len(messages) == 0 {
		f.Fail(dialect.Invalid("messages", "invalid_value", "'messages' is empty; at least one message is required."))
	}
	return messages, continues
}

func parseMessage(f *dialect.Fields) chat.Message {
	m := chat.Message{Role: chat.Role(f.String("role", ""))}
	param := f.Path + "role"
	switch m.Role {
	case chat.System, chat.Developer, chat.User, chat.LatestReminder:
		m.Content = content(f, true)
	case chat.Assistant:
		for _, name := range []string{"function_call", "audio"} {
			if f.Has(name) {
				f.Fail(dialect.Unsupported(f.Path+name, "'%s' is not supported; use tool_calls.", f.Path+name))
			}
		}
		m.Reasoning = f.String("reasoning_content", f.String("reasoning", ""))
		m.Calls = parseCalls(f)
		m.Content = content(f, false)
	case chat.Tool:
		m.CallID = f.String("tool_call_id", "")
		m.Content = content(f, true)
	case "function":
		f.Fail(dialect.Unsupported(param, "Messages with the role 'function' are not supported; use tools."))
	case "":
		f.Missing("role")
	default:
		f.Fail(dialect.Invalid(param, "invalid_value", "'%s' must be system, developer, user, assistant or tool, not '%s'.", param, dialect.Excerpt(json.RawMessage(m.Role))))
	}
	return m
}

// parseCalls reads "tool_calls" of a message of the assistant.
func parseCalls(f *dialect.Fields) []chat.Call {
	var out []chat.Call
	f.EachObject("tool_calls", dialect.MaxCalls, func(_ int, o *dialect.Fields) {
		call := chat.Call{ID: o.String("id", "")}
		switch kind := o.String("type", "function"); {
		case o.Err != nil:
		case kind != "function":
			o.Fail(dialect.Unsupported(o.Path+"type", "Calls of the type '%s' are not supported; only 'function' is.", dialect.Excerpt(json.RawMessage(kind))))
		default:
			o.Require("function")
		}
		fn := o.Object("function")
		call.Name, call.Arguments = dialect.CalledName(fn.String("name", "")), fn.String("arguments", "")
		o.Adopt(fn)
		out = append(out, call)
	})
	return out
}

// maxParts is the most parts of the content of a message.
const maxParts = 1024

// content reads a string, or a list of text parts, which are concatenated.
func content(f *dialect.Fields, required bool) string {
	if required {
		f.Require("content")
	}
	var out strings.Builder
	add := func(text string) { out.WriteString(text) }
	f.TextOrObjects("content", "parts", maxParts, add, func(part *dialect.Fields) {
		if kind := part.String("type", ""); kind != "text" {
			part.Fail(dialect.Unsupported(part.Path+"type", "Content parts of type '%s' are not supported; only 'text' is.", dialect.Excerpt(json.RawMessage(kind))))
		}
		part.Require("text")
		add(part.String("text", ""))
	})
	return out.String()
}

// prediction reads OpenAI's "prediction": a text that much of the answer is expected to
// repeat.
func prediction(f *dialect.Fields) string {
	o := f.Object("prediction")
	defer f.Adopt(o)
	if !f.Has("prediction") {
		return ""
	}
	if kind := o.String("type", "content"); kind != "content" {
		o.Fail(dialect.Invalid("prediction.type", "invalid_value", "'prediction.type' must be content, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
	}
	return content(o, true)
}

// parseThinking reads the different ways in which clients request reasoning. An
// explicit switch wins over the effort; an effort alone enables reasoning.
func parseThinking(f *dialect.Fields, c *chat.Conversation) {
	effort := f.String("reasoning_effort", "")
	if r := f.Object("reasoning"); f.Has("reasoning") {
		effort = r.String("effort", effort)
		f.Adopt(r)
	}
	template := f.Object("chat_template_kwargs")
	effort = template.String("reasoning_effort", effort)
	if effort != "" && effort != "none" {
		if !chat.IsEffort(effort) {
			f.Fail(dialect.Invalid("reasoning_effort", "invalid_value",
				"'reasoning_effort' must be none, minimal, low, medium, high, xhigh or max, not '%s'.", dialect.Excerpt(json.RawMessage(effort))))
		}
		c.Thinking, c.Effort = true, effort
	}
	c.Thinking = template.Bool("enable_thinking", template.Bool("thinking", c.Thinking))
	f.Adopt(template)
	c.Thinking = f.Bool("enable_thinking", c.Thinking)
	if f.Has("thinking") {
		o := f.Object("thinking")
		switch kind := o.String("type", ""); kind {
		case "enabled":
			c.Thinking = true
		case "disabled":
			c.Thinking = false
		default:
			o.Fail(dialect.Invalid("thinking.type", "invalid_value", "'thinking.type' must be enabled or disabled, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
		}
		f.Adopt(o)
	}
	if !c.Thinking {
		c.Effort = ""
	}
}
