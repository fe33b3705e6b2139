// Package anthropic speaks Anthropic's Messages API, which Claude Code uses.
//
//	field                                              treatment
//	model, messages, system, max_tokens, stream,       used
//	temperature, top_p, top_k, stop_sequences
//	thinking                                           type used; display "omitted" leaves the texts out;
//	                                                   budget_tokens ignored: the model has no such limit
//	output_config.effort                               used, if the model reasons
//	metadata.user_id, cache_control                    used: they say what the prefix cache should keep
//	metadata, service_tier, betas, inference_geo       ignored: they change no answer
//	context_management                                 ignored; the request's log line is a warning that names
//	                                                   edits that would remove something
//	unknown fields                                     ignored; the request's log line names them
//	tools, tool_choice                                 used, also bash_DATE, text_editor_DATE and memory_DATE,
//	                                                   which the client runs. Tools that Anthropic's servers
//	                                                   run are left out because the model could not call them,
//	                                                   and the request's log line is a warning that names them
//	output_config.format, output_format                used: answers fit the schema
//	max_tokens 0                                       used: the prompt is computed and cached, without an answer
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
	dropped      []string // tools and blocks that the model does not see
}

// harmless lists fields that are ignored and change no answer.
var harmless = []string{"metadata", "service_tier", "betas", "inference_geo", "cache_control", "anthropic_version", "anthropic_beta", "thinking.budget_tokens", "diagnostics", "speed"}

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
		c.Messages = append(c.Messages, r.parseMessage(m)...)
	})
	if f.Err == nil && n == 0 {
		f.Fail(dialect.Invalid("messages", "invalid_value", "'messages' is empty; at least one message is required."))
	}
	// A last message of the assistant is the beginning of the answer.
	if f.Err == nil && c.Messages[len(c.Messages)-1].Role == chat.Assistant {
		c.Ending = chat.Continue
	}
	parseThinking(f, r)
	r.parseTools(f)
	r.parseEdits(f)
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
	r.format(o, "format")
	f.Adopt(o)
	if r.answer == nil {
		r.format(f, "output_format") // the older name
	}
}

// parseEdits reads what Anthropic's servers would remove from the conversation. The server
// removes nothing, which matters only if the client asked for more.
func (r *request) parseEdits(f *dialect.Fields) {
	o := f.Object("context_management")
	o.EachObject("edits", maxBlocks, func(_ int, e *dialect.Fields) {
		keep, _ := dialect.Compact(e.Raw["keep"])
		if kind := e.String("type", ""); !strings.HasPrefix(kind, "clear_thinking") || keep != `"all"` {
			r.dropped = append(r.dropped, "edit "+kind)
		}
	})
	f.Adopt(o)
}

// format reads the schema of the answer from a member of an object.
func (r *request) format(f *dialect.Fields, name string) {
	format := f.Object(name)
	if !f.Has(name) || format.Err != nil {
		f.Adopt(format)
		return
	}
	param := f.Path + name
	raw := format.Get("schema")
	if format.String("type", "") != "json_schema" || raw == nil || dialect.KindOf(raw) != "object" {
		f.Fail(dialect.Invalid(param, "invalid_value", "'%s' must have the type json_schema and a schema, which is an object.", param))
		return
	}
	var failed *dialect.Error
	if r.answer, failed = dialect.SchemaForm(raw, param+".schema"); failed != nil {
		f.Fail(failed)
	}
	r.conversation.Schema = bytes.Clone(raw)
}

// Messages parses a request to /v1/messages.
func Messages(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	r := parse(s, f)
	limit := int(f.Integer("max_tokens", -1, 0, math.MaxInt32))
	// The engine computes a prompt only to generate at least one token.
	promptOnly := limit == 0
	q := engine.Request{MaxTokens: max(limit, 0), Stop: dialect.Stops(f, "stop_sequences"), Sampling: dialect.Sampling(f)}
	if promptOnly {
		q.MaxTokens = 1
	}
	stream := f.Bool("stream", false)
	if f.Err != nil {
		return nil, f.Err
	}
	call := &dialect.Call{Stream: stream, Dropped: r.dropped, Ignored: f.Unread(harmless)}
	var failed *dialect.Error
	if call.Job, failed = s.Chat(f, &r.conversation, r.answer, []engine.Request{q}, "toolu_"); failed != nil {
		return nil, failed
	}
	call.Job.AnswerID = "rm_" + s.NewID() // also the signature of its thinking
	reply := &reply{stream: stream, hide: r.hide, promptOnly: promptOnly, signature: call.Job.AnswerID, prompt: len(call.Job.Requests[0].Prompt), open: -1,
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
