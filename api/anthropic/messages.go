// Package anthropic speaks Anthropic's Messages API, which Claude Code uses.
//
//	field                                              what becomes of it
//	model, messages, system, max_tokens, stream,       used
//	temperature, top_p, top_k, stop_sequences
//	thinking                                           type used; display "omitted" leaves the texts out;
//	                                                   budget_tokens passes: the model has no such limit
//	output_config.effort                               used, if the model reasons
//	metadata, context_management, cache_control,       pass: they change no answer
//	service_tier, container, betas, unknown fields
//	tools, tool_choice, mcp_servers,                   refused unless they ask for nothing: an answer
//	output_config.format                               without them would only look right
//
// Blocks of images and documents are refused, too. A system message in the middle
// of the conversation stays where it is, inside the turn of the user, because the
// prefix cache finds only what has not moved.
package anthropic

import (
	"encoding/json"
	"math"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
	"ringmaster/model/prompt"
)

// UnsupportedFields are those whose values must be neutral.
var UnsupportedFields = []dialect.UnsupportedField{
	{Name: "tools", Neutral: []string{`[]`}, Remedy: "Tools are not supported yet; leave them out."},
	{Name: "tool_choice", Neutral: []string{`{"type":"none"}`, `{"type":"auto"}`}, Remedy: "Tools are not supported yet."},
	{Name: "mcp_servers", Neutral: []string{`[]`}, Remedy: "The server calls no other servers."},
}

// maxBlocks is the most blocks of a message.
const maxBlocks = 1024

// billing begins a line that Claude Code puts in front of its instructions. It has
// a number that differs in each request, so a prompt with it is never found in the
// prefix cache; the model has no use for it.
const billing = "x-anthropic-billing-header:"

// request is what a body says, without its prompt.
type request struct {
	conversation dialect.Conversation
	model        string
	hide         bool // send no reasoning, only that there was some
}

// parse reads the fields that counting and answering share.
func parse(s *dialect.Service, f *dialect.Fields) *request {
	f.Reject(UnsupportedFields)
	r := &request{model: s.ModelName(f)}
	c := &r.conversation
	if f.Has("system") {
		if text := withoutBilling(content(f, "system", nil)); text != "" {
			c.Messages = append(c.Messages, prompt.Message{Role: prompt.System, Content: text})
		}
	}
	if f.Err == nil && !f.Has("messages") {
		f.Fail(dialect.Invalid("messages", "missing_required_parameter", "'messages' is missing."))
	}
	n := 0
	f.EachObject("messages", s.MaxMessages, func(i int, m *dialect.Fields) {
		n++
		message := parseMessage(m)
		if message.Role == prompt.System && i > 0 {
			message.Role = prompt.User
		}
		c.Messages = append(c.Messages, message)
	})
	if f.Err == nil && n == 0 {
		f.Fail(dialect.Invalid("messages", "invalid_value", "'messages' is empty; at least one message is required."))
	}
	// A last message of the assistant is the beginning of the answer.
	c.Continue = f.Err == nil && c.Messages[len(c.Messages)-1].Role == prompt.Assistant
	parseThinking(f, r)
	return r
}

// withoutBilling is the instructions without a line of billing at their start.
func withoutBilling(text string) string {
	if strings.HasPrefix(text, billing) {
		_, text, _ = strings.Cut(text, "\n")
		text = strings.TrimLeft(text, "\n")
	}
	return text
}

func parseMessage(m *dialect.Fields) prompt.Message {
	out := prompt.Message{Role: prompt.Role(m.String("role", ""))}
	switch out.Role {
	case prompt.User, prompt.System:
		out.Content = content(m, "content", nil)
	case prompt.Assistant:
		out.Content = content(m, "content", &out.Reasoning)
	case "":
		m.Fail(dialect.Invalid(m.Path+"role", "missing_required_parameter", "'%srole' is missing.", m.Path))
	default:
		m.Fail(dialect.Invalid(m.Path+"role", "invalid_value", "'%srole' must be user or assistant, not '%s'.", m.Path, dialect.Excerpt(json.RawMessage(out.Role))))
	}
	return out
}

// content reads a string, or a list of blocks: their texts are put together, with
// an empty line between them. Blocks of thinking go to reasoning; nil: they are not
// allowed.
func content(f *dialect.Fields, name string, reasoning *string) string {
	raw := f.Get(name)
	switch {
	case f.Err != nil:
		return ""
	case raw == nil:
		f.Fail(dialect.Invalid(f.Path+name, "missing_required_parameter", "'%s' is missing.", f.Path+name))
		return ""
	case dialect.KindOf(raw) == "string":
		return dialect.Text(raw)
	case dialect.KindOf(raw) != "array":
		f.WrongType(name, "a string or an array of blocks", raw)
		return ""
	}
	var texts, thoughts []string
	f.EachObject(name, maxBlocks, func(_ int, b *dialect.Fields) {
		switch kind := b.String("type", ""); {
		case b.Err != nil:
		case kind == "text":
			text := b.String("text", "")
			if name == "system" {
				text = withoutBilling(text)
			}
			if text != "" {
				texts = append(texts, text)
			}
		case kind == "thinking" && reasoning != nil:
			thoughts = append(thoughts, b.String("thinking", ""))
		case kind == "redacted_thinking" && reasoning != nil: // not ours, so it cannot be read
		default:
			b.Fail(dialect.Unsupported(b.Path+"type", "Blocks of type '%s' are not supported here; only 'text' is.", dialect.Excerpt(json.RawMessage(kind))))
		}
	})
	if reasoning != nil {
		*reasoning = strings.Join(thoughts, "\n\n")
	}
	return strings.Join(texts, "\n\n")
}

// parseThinking reads whether the model is to reason, and how hard.
func parseThinking(f *dialect.Fields, r *request) {
	c := &r.conversation
	if o := f.Object("thinking"); f.Has("thinking") {
		switch kind := o.String("type", ""); kind {
		case "enabled", "adaptive":
			c.Thinking = true
		case "disabled":
		default:
			o.Fail(dialect.Invalid("thinking.type", "invalid_value", "'thinking.type' must be enabled, adaptive or disabled, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
		}
		r.hide = o.String("display", "") == "omitted"
		f.Adopt(o)
	}
	o := f.Object("output_config")
	if effort := o.String("effort", ""); effort != "" {
		known, ok := dialect.Efforts[effort]
		if !ok {
			o.Fail(dialect.Invalid("output_config.effort", "invalid_value", "'output_config.effort' must be low, medium, high, xhigh or max, not '%s'.", dialect.Excerpt(json.RawMessage(effort))))
		}
		if c.Thinking {
			c.Effort = known
		}
	}
	if o.Has("format") {
		o.Fail(dialect.Unsupported("output_config.format", "'output_config.format' is not supported yet; ask for the format in a message."))
	}
	f.Adopt(o)
}

// Messages parses a request to /v1/messages.
func Messages(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	r := parse(s, f)
	q := engine.Request{MaxTokens: int(f.Integer("max_tokens", 0, 1, math.MaxInt32)), Stop: dialect.Stops(f, "stop_sequences"), Sampling: dialect.Sampling(f)}
	stream := f.Bool("stream", false)
	if f.Err != nil {
		return nil, f.Err
	}
	var failed *dialect.Error
	if q.Prompt, failed = s.Render(f.Ctx, &r.conversation); failed != nil {
		return nil, failed
	}
	reply := &reply{stream: stream, hide: r.hide, signature: "rm_" + s.NewID(), prompt: len(q.Prompt), open: -1,
		message: message{ID: "msg_" + s.NewID(), Type: "message", Role: "assistant", Model: r.model, Content: []*block{}}}
	return &dialect.Call{
		Stream: stream,
		Job:    run.Job{Requests: []engine.Request{q}, Parse: true, Thinking: r.conversation.Thinking && !r.conversation.Continue},
		Reply:  func(out *dialect.Writer) dialect.Reply { reply.out = out; return reply },
	}, nil
}

// CountTokens answers a request to /v1/messages/count_tokens.
func CountTokens(s *dialect.Service, f *dialect.Fields) (any, *dialect.Error) {
	r := parse(s, f)
	if f.Err != nil {
		return nil, f.Err
	}
	ids, failed := s.Render(f.Ctx, &r.conversation)
	if failed != nil {
		return nil, failed
	}
	return struct {
		InputTokens int `json:"input_tokens"`
	}{len(ids)}, nil
}
