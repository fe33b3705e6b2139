// Package anthropic speaks Anthropic's Messages API, which Claude Code uses.
//
//	field                                              treatment
//	model, messages, system, max_tokens, stream,       used
//	temperature, top_p, top_k, stop_sequences
//	thinking                                           type used; display "omitted" leaves the texts out;
//	                                                   budget_tokens ignored: the model has no such limit
//	output_config.effort                               used, if the model reasons
//	metadata.user_id, cache_control                    used: they say what the prefix cache should keep
//	metadata, context_management, service_tier,        ignored: they change no answer
//	container, betas, unknown fields
//	tools, tool_choice                                 used; tools that Anthropic's servers run are left
//	                                                   out because the model could not call them
//	output_config.format                               used: answers fit the schema
//	mcp_servers                                        refused unless it asks for nothing: an answer
//	                                                   without it would only look right
//
// Blocks of images and documents are refused too; in the result of a tool the prompt
// names their type instead. A system message in the middle of the conversation stays
// where it is, because the prefix cache finds only what has not moved.
package anthropic

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// UnsupportedFields lists the fields that must have a neutral value.
var UnsupportedFields = []dialect.UnsupportedField{
	{Name: "mcp_servers", Neutral: []string{`[]`}, Remedy: "The server calls no other servers."},
}

// maxBlocks is the most blocks of a message.
const maxBlocks = 1024

// billing starts a line that Claude Code puts before its instructions. It has a number
// that differs in each request, so the prefix cache would never find a prompt with it.
// The model has no use for it.
const billing = "x-anthropic-billing-header:"

// request holds the fields of a body, without its chat.
type request struct {
	conversation chat.Conversation
	model        string
	hide         bool // send no reasoning, only a sign that there was some
	answer       *dialect.Form
}

// parse reads the fields that counting and answering share.
func parse(s *dialect.Service, f *dialect.Fields) *request {
	f.Reject(UnsupportedFields)
	r := &request{model: s.ModelName(f)}
	c := &r.conversation
	if f.Has("system") {
		if text := content(f, "system"); text != "" {
			c.Messages = append(c.Messages, chat.Message{Role: chat.System, Content: text})
		}
	}
	f.Require("messages")
	n := 0
	f.EachObject("messages", s.MaxMessages, func(_ int, m *dialect.Fields) {
		n++
		c.Messages = append(c.Messages, parseMessage(m)...)
	})
	if f.Err == nil && n == 0 {
		f.Fail(dialect.Invalid("messages", "invalid_value", "'messages' is empty; at least one message is required."))
	}
	// A last message of the assistant is the beginning of the answer.
	if f.Err == nil && c.Messages[len(c.Messages)-1].Role == chat.Assistant {
		c.Ending = chat.Continue
	}
	parseThinking(f, r)
	parseTools(f, c)
	return r
}

// withoutBilling returns the instructions without a line of billing at their start.
func withoutBilling(text string) string {
	if strings.HasPrefix(text, billing) {
		_, text, _ = strings.Cut(text, "\n")
		text = strings.TrimLeft(text, "\n")
	}
	return text
}

// parseThinking reads whether the model should reason, and how hard.
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
		if !chat.IsEffort(effort) {
			o.Fail(dialect.Invalid("output_config.effort", "invalid_value", "'output_config.effort' must be low, medium, high, xhigh or max, not '%s'.", dialect.Excerpt(json.RawMessage(effort))))
		}
		if c.Thinking {
			c.Effort = effort
		}
	}
	if format := o.Object("format"); o.Has("format") {
		switch raw := format.Get("schema"); {
		case format.Err != nil:
		case format.String("type", "") != "json_schema" || raw == nil || dialect.KindOf(raw) != "object":
			format.Fail(dialect.Invalid("output_config.format", "invalid_value", "'output_config.format' must have the type json_schema and a schema, which is an object."))
		default:
			var failed *dialect.Error
			if r.answer, failed = dialect.SchemaForm(raw, "output_config.format.schema"); failed != nil {
				format.Fail(failed)
			}
			c.Schema = bytes.Clone(raw)
		}
		o.Adopt(format)
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
	call := &dialect.Call{Stream: stream}
	var failed *dialect.Error
	if call.Job, failed = s.Chat(f, &r.conversation, r.answer, []engine.Request{q}, "toolu_"); failed != nil {
		return nil, failed
	}
	call.Job.AnswerID = "rm_" + s.NewID() // also the signature of its thinking
	reply := &reply{stream: stream, hide: r.hide, signature: call.Job.AnswerID, prompt: len(call.Job.Requests[0].Prompt), open: -1,
		message: message{ID: "msg_" + s.NewID(), Type: "message", Role: "assistant", Model: r.model, Content: []*block{}}}
	call.Reply = func(out *dialect.Writer) dialect.Reply { reply.out = out; return reply }
	return call, nil
}

// CountTokens answers a request to /v1/messages/count_tokens.
func CountTokens(s *dialect.Service, f *dialect.Fields) (any, *dialect.Error) {
	r := parse(s, f)
	if f.Err != nil {
		return nil, f.Err
	}
	ids, _, failed := s.Render(f, &r.conversation)
	if failed != nil {
		return nil, failed
	}
	return struct {
		InputTokens int `json:"input_tokens"`
	}{len(ids)}, nil
}
