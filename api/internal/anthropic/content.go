package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// parseMessage reads a message. Results of tools in a message of the user become separate
// messages, before and after the texts around them.
func (r *request) parseMessage(m *dialect.Fields) []chat.Message {
	role := chat.Role(m.String("role", ""))
	switch role {
	case chat.User, chat.System, chat.Assistant:
	case "":
		m.Missing("role")
	default:
		m.Fail(dialect.Invalid(m.Path+"role", "invalid_value", "'%srole' must be user or assistant, not '%s'.", m.Path, dialect.Excerpt(json.RawMessage(role))))
	}
	if m.Err != nil {
		return nil
	}
	b := blocks{role: role}
	b.read(m, "content")
	r.dropped = append(r.dropped, b.dropped...)
	return b.messages()
}

// content reads a string, or a list of text blocks, and joins their texts with an empty
// line.
func content(f *dialect.Fields, name string) string {
	b := blocks{role: chat.System, billing: true}
	b.read(f, name)
	return strings.Join(b.texts, "\n\n")
}

// blocks collects the blocks of a message.
type blocks struct {
	role    chat.Role
	billing bool // leave lines of billing out

	texts     []string // since the last result
	thoughts  []string
	signature string // of the last of them
	calls     []chat.Call
	done      []chat.Message
	dropped   []string // types of blocks that the model does not see
}

// read reads a member that is a string or a list of blocks.
func (b *blocks) read(f *dialect.Fields, name string) {
	f.Require(name)
	f.TextOrObjects(name, "blocks", maxBlocks, b.text, b.block)
}

func (b *blocks) text(s string) {
	if b.billing {
		s = withoutBilling(s)
	}
	if s != "" {
		b.texts = append(b.texts, s)
	}
}

func (b *blocks) block(o *dialect.Fields) {
	switch kind := o.String("type", ""); {
	case o.Err != nil:
	case kind == "text":
		b.text(o.String("text", ""))
	case kind == "thinking" && b.role == chat.Assistant:
		b.thoughts = append(b.thoughts, o.String("thinking", ""))
		b.signature = o.String("signature", "")
	case kind == "redacted_thinking" && b.role == chat.Assistant: // from another server, so it cannot be read
	case kind == "tool_use" && b.role == chat.Assistant:
		b.call(o)
	case kind == "tool_result" && b.role == chat.User:
		b.result(o)
	case serverBlock(kind) && b.role == chat.Assistant:
		b.dropped = append(b.dropped, "block "+kind)
	default:
		o.Fail(dialect.Unsupported(o.Path+"type", "Blocks of type '%s' are not supported here; only 'text' is, 'tool_use' of the assistant and 'tool_result' of the user.", dialect.Excerpt(json.RawMessage(kind))))
	}
}

// serverBlock reports whether a block is a call or a result of a tool that ran on
// Anthropic's servers, or what they made of the conversation.
func serverBlock(kind string) bool {
	return kind == "server_tool_use" || kind == "mcp_tool_use" || kind == "mcp_tool_result" || kind == "compaction" || kind == "container_upload" ||
		strings.HasSuffix(kind, "_tool_result")
}

// call reads a block of type tool_use.
func (b *blocks) call(o *dialect.Fields) {
	c := chat.Call{ID: o.String("id", ""), Name: dialect.CalledName(o.String("name", "")), Arguments: "{}"}
	if raw := o.RawObject("input"); raw != nil {
		c.Arguments = string(raw)
	}
	b.calls = append(b.calls, c)
}

// result reads a block of type tool_result.
func (b *blocks) result(o *dialect.Fields) {
	b.turn()
	m := chat.Message{Role: chat.Tool, CallID: o.String("tool_use_id", "")}
	var texts []string
	add := func(text string) { texts = append(texts, text) }
	// Without content, the tool said nothing.
	o.TextOrObjects("content", "blocks", maxBlocks, add, func(part *dialect.Fields) {
		if kind := part.String("type", ""); kind == "text" {
			add(part.String("text", ""))
		} else {
			add(fmt.Sprintf("[Unsupported %s]", dialect.Excerpt(json.RawMessage(kind))))
		}
	})
	m.Content = strings.Join(texts, "\n\n")
	if o.Bool("is_error", false) {
		m.Content = "Error: " + m.Content
	}
	b.done = append(b.done, m)
}

// turn ends the texts so far.
func (b *blocks) turn() {
	if len(b.texts) > 0 {
		b.done = append(b.done, chat.Message{Role: b.role, Content: strings.Join(b.texts, "\n\n")})
		b.texts = nil
	}
}

func (b *blocks) messages() []chat.Message {
	if b.role == chat.Assistant {
		return []chat.Message{{Role: chat.Assistant, Content: strings.Join(b.texts, "\n\n"), Reasoning: strings.Join(b.thoughts, "\n\n"), Calls: b.calls, ID: b.signature}}
	}
	b.turn()
	if len(b.done) == 0 {
		return []chat.Message{{Role: b.role}}
	}
	return b.done
}
