package responses

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// Limits of the input.
const maxParts = 1024

// sealed starts the encrypted_content of reasoning: the text itself in base64, because
// there is nothing to hide from the client that asked.
const sealed = "rm1."

// input reads "input": a text, or items. An assistant's turn comes as several items,
// which become one message.
func (r *request) input(s *dialect.Service, f *dialect.Fields) {
	c := &r.conversation
	f.Require("input")
	n := 0
	text := func(text string) {
		n++
		c.Messages = append(c.Messages, chat.Message{Role: chat.User, Content: text})
	}
	f.TextOrObjects("input", "items", s.MaxMessages, text, func(o *dialect.Fields) {
		n++
		r.item(o)
	})
	if f.Err == nil && n == 0 {
		f.Fail(dialect.Invalid("input", "invalid_value", "'input' is empty; at least one item is required."))
	}
	if last := len(c.Messages) - 1; f.Err == nil && last >= 0 && c.Messages[last].Role == chat.Assistant && len(c.Messages[last].Calls) == 0 {
		c.Ending = chat.Continue
	}
}

// turn returns the assistant's message that an item belongs to: the last message, or a
// new one if the last is not the assistant's or has ended.
func (r *request) turn(ended func(m *chat.Message) bool) *chat.Message {
	c := &r.conversation
	if n := len(c.Messages); n == 0 || c.Messages[n-1].Role != chat.Assistant || ended(&c.Messages[n-1]) {
		c.Messages = append(c.Messages, chat.Message{Role: chat.Assistant})
	}
	return &c.Messages[len(c.Messages)-1]
}

// item adds an item to the conversation.
func (r *request) item(o *dialect.Fields) {
	c := &r.conversation
	switch kind := o.String("type", "message"); kind {
	case "message":
		r.message(o)
	case "reasoning":
		m := r.turn(func(m *chat.Message) bool { return m.Content != "" || len(m.Calls) > 0 })
		if text := reasoning(o); m.Reasoning == "" {
			m.Reasoning = text
		} else {
			m.Reasoning += "\n\n" + text
		}
	case "function_call", "custom_tool_call":
		arguments := o.String("arguments", "{}")
		if kind == "custom_tool_call" {
			arguments = string(dialect.Marshal(map[string]string{customInput: o.String("input", "")}))
		}
		r.call(o, r.modelName(o.String("namespace", ""), o.String("name", "")), arguments)
	case "function_call_output", "custom_tool_call_output":
		c.Messages = append(c.Messages, chat.Message{Role: chat.Tool, CallID: o.String("call_id", ""), Content: parts(o, "output")})
	case "additional_tools":
		c.Functions = r.more(o)
	case "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call":
		if client := clientRunOf(kind); client.kind == "tool_search" && o.String("execution", "server") != "client" {
			r.dropped = append(r.dropped, "item "+kind)
		} else {
			r.call(o, client.kind, client.arguments(o))
		}
	case "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "tool_search_output":
		text := r.result(clientRunOf(kind), o)
		if kind == "tool_search_output" && o.String("execution", "server") != "client" {
			r.dropped = append(r.dropped, "item "+kind) // without the call, which was OpenAI's; its tools are offered
			break
		}
		c.Messages = append(c.Messages, chat.Message{Role: chat.Tool, CallID: o.String("call_id", o.String("id", "")), Content: text})
	case "web_search_call", "image_generation_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
		"computer_call", "computer_call_output", "compaction", "compaction_summary", "context_compaction", "compaction_trigger":
		// of tools that this server did not offer, or sealed by OpenAI
		r.dropped = append(r.dropped, "item "+kind)
	case "item_reference":
		o.Fail(dialect.Unsupported(o.Path+"type", "Items of the type 'item_reference' are not supported: the server keeps no items. Send them whole, as clients do with \"store\": false."))
	default:
		o.Fail(dialect.Unsupported(o.Path+"type", "Items of the type '%s' are not supported.", dialect.Excerpt(json.RawMessage(kind))))
	}
}

// call adds a call of a function to the assistant's turn.
func (r *request) call(o *dialect.Fields, name, arguments string) {
	call := chat.Call{ID: o.String("call_id", o.String("id", "")), Name: dialect.CalledName(name), Arguments: arguments}
	m := r.turn(func(*chat.Message) bool { return false })
	m.Calls = append(m.Calls, call)
}

// message adds a message.
func (r *request) message(o *dialect.Fields) {
	c := &r.conversation
	text := parts(o, "content")
	switch role := o.String("role", ""); role {
	case "user":
		c.Messages = append(c.Messages, chat.Message{Role: chat.User, Content: text})
	case "system", "developer":
		if text != "" {
			c.Messages = append(c.Messages, chat.Message{Role: chat.System, Content: text})
		}
	case "assistant":
		m := r.turn(func(m *chat.Message) bool { return len(m.Calls) > 0 })
		m.Content += text
	default:
		o.Fail(dialect.Invalid(o.Path+"role", "invalid_value", "'%srole' must be user, assistant, system or developer, not '%s'.", o.Path, dialect.Excerpt(json.RawMessage(role))))
	}
}

// parts reads a string, or a list of parts with texts.
func parts(o *dialect.Fields, name string) string {
	o.Require(name)
	var texts []string
	add := func(text string) { texts = append(texts, text) }
	o.TextOrObjects(name, "parts", maxParts, add, func(p *dialect.Fields) {
		switch kind := p.String("type", ""); {
		case p.Err != nil:
		case kind == "input_text" || kind == "output_text" || kind == "text" || kind == "reasoning_text" || kind == "summary_text":
			add(p.String("text", ""))
		case kind == "refusal":
			add(p.String("refusal", ""))
		case name == "output": // of a tool; the prompt names what the model cannot see
			add(fmt.Sprintf("[Unsupported %s]", dialect.Excerpt(json.RawMessage(kind))))
		default:
			p.Fail(dialect.Unsupported(p.Path+"type", "Parts of the type '%s' are not supported; only texts are.", dialect.Excerpt(json.RawMessage(kind))))
		}
	})
	return strings.Join(texts, "\n\n")
}

// reasoning returns the text of a reasoning item: what the server sealed, otherwise the
// item's own texts.
func reasoning(o *dialect.Fields) string {
	if text, ok := strings.CutPrefix(o.String("encrypted_content", ""), sealed); ok {
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			return string(b)
		}
	}
	for _, name := range []string{"content", "summary"} {
		if o.Has(name) {
			if text := parts(o, name); text != "" {
				return text
			}
		}
	}
	return ""
}
