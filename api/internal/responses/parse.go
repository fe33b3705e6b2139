// Package responses speaks OpenAI's Responses API, which Codex uses, without state
// on the server: a request has the whole conversation.
//
//	field                                              treatment
//	model, input, instructions, tools, tool_choice,    used
//	parallel_tool_calls, max_output_tokens, stream,
//	temperature, top_p, reasoning.effort, text.format
//	prompt_cache_key, prompt_cache_retention, user     used: they say what the prefix cache should keep
//	store, metadata, client_metadata,                  ignored: they change no answer. Reasoning is always
//	truncation, service_tier, reasoning.summary,       returned, as text and as encrypted_content, which
//	text.verbosity                                     brings it back
//	include                                            ignored; the request's log line is a warning that names
//	                                                   what is not included
//	unknown fields                                     ignored; the request's log line names them
//	tools of type function, custom, namespace,         offered
//	local_shell, shell, apply_patch, and tool_search
//	with execution client
//	other tools                                        left out: they run on OpenAI's servers. The response
//	                                                   lists the tools that the model is offered, and the
//	                                                   request's log line is a warning that names the rest
//	previous_response_id, conversation, background,    refused: there is no state
//	prompt
//
// The model sees every tool as a function: one of type custom, which takes any text as
// input, with one string; one of a namespace as NAMESPACE__NAME, shortened with a hash if
// that is too long or taken. Calls and results have the item types of the tool. Images and
// files are refused.
package responses

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// unsupported lists the fields that must have a neutral value.
var unsupported = []dialect.UnsupportedField{
	{Name: "previous_response_id", Remedy: "The server keeps no responses; send the whole conversation as input."},
	{Name: "conversation", Remedy: "The server keeps no conversations; send the whole conversation as input."},
	{Name: "background", Neutral: []string{`false`}, Remedy: "Responses are not kept; read the answer of the request."},
	{Name: "prompt", Remedy: "The server keeps no prompts; send instructions and input."},
	{Name: "top_logprobs", Neutral: []string{`0`}, Remedy: "Use /v1/chat/completions."},
}

// harmless lists fields that are ignored and change no answer.
var harmless = []string{
	"store", "metadata", "client_metadata", "truncation", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "user",
	"reasoning.summary", "reasoning.generate_summary", "reasoning.context", "text.verbosity", "text.format.name", "text.format.description", "text.format.strict", "stream_options",
}

// request holds the fields of a body.
type request struct {
	conversation chat.Conversation
	model        string
	instructions *string
	effort       string
	answer       *dialect.Form
	offers       map[string]offer     // by the name that the model sees
	names        map[[2]string]string // that the model sees, by namespace and name
	tools        []tool               // all that the client offered; the response repeats them
	listed       map[string]bool      // functions of the conversation; nil before more needs it
	places       map[place]int        // indices in tools; nil before more needs it
	choice       json.RawMessage      // tool_choice; nil: absent
	shown        json.RawMessage      // text.format; nil: text
	parallel     bool                 // parallel_tool_calls
	dropped      []string             // tools and items that the model does not see
}

// Create parses a request to /v1/responses.
func Create(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	f.Reject(unsupported)
	r := &request{model: s.ModelName(f), offers: map[string]offer{}, names: map[[2]string]string{}}
	c := &r.conversation
	if f.Has("instructions") {
		text := f.String("instructions", "")
		r.instructions = &text
		if text != "" {
			c.Messages = append(c.Messages, chat.Message{Role: chat.System, Content: text})
		}
	}
	c.Functions = r.readTools(f)
	r.input(s, f)
	r.choose(f)
	r.thinking(f)
	r.format(f)
	for _, raw := range f.List("include", maxParts) {
		// Reasoning is always included; what else can be asked for is of tools that OpenAI runs,
		// or log-probabilities, which this API does not have.
		if v := strings.Trim(dialect.Excerpt(raw), `"`); v != "reasoning.encrypted_content" {
			r.dropped = append(r.dropped, "include "+v)
		}
	}
	q := engine.Request{MaxTokens: int(f.Integer("max_output_tokens", 0, 1, math.MaxInt32)), Sampling: dialect.Sampling(f)}
	stream := f.Bool("stream", false)
	if f.Err != nil {
		return nil, f.Err
	}
	call := &dialect.Call{Stream: stream, Dropped: r.dropped, Ignored: f.Unread(harmless)}
	var failed *dialect.Error
	if call.Job, failed = s.Chat(f, c, r.answer, []engine.Request{q}, "call_"); failed != nil {
		return nil, failed
	}
	reply := newReply(s, r, &q, stream)
	call.Reply = func(out *dialect.Writer) dialect.Reply { reply.out, out.Fail = out, reply.fail; return reply }
	return call, nil
}

// thinking reads whether the model should reason, and how hard.
func (r *request) thinking(f *dialect.Fields) {
	o := f.Object("reasoning")
	r.effort = o.String("effort", "")
	if r.effort != "" && !chat.IsEffort(r.effort) {
		o.Fail(dialect.Invalid("reasoning.effort", "invalid_value", "'reasoning.effort' must be none, minimal, low, medium, high, xhigh or max, not '%s'.", dialect.Excerpt(json.RawMessage(r.effort))))
	}
	f.Adopt(o)
	if r.effort != "" && r.effort != "none" {
		r.conversation.Thinking, r.conversation.Effort = true, r.effort
	}
}

// format reads "text.format".
func (r *request) format(f *dialect.Fields) {
	t := f.Object("text")
	o := t.Object("format")
	switch kind := o.String("type", "text"); kind {
	case "text":
	case "json_object":
		r.shown = bytes.Clone(t.Get("format"))
		r.answer, r.conversation.Schema = dialect.ObjectForm(), json.RawMessage(`{"type": "json_object"}`)
	case "json_schema":
		raw := o.Get("schema")
		if raw == nil || dialect.KindOf(raw) != "object" {
			o.Fail(dialect.Invalid("text.format.schema", "missing_required_parameter", "'text.format.schema' must be a JSON schema, which is an object."))
			break
		}
		var failed *dialect.Error
		if r.answer, failed = dialect.SchemaForm(raw, "text.format.schema"); failed != nil {
			o.Fail(failed)
		}
		r.shown, r.conversation.Schema = bytes.Clone(t.Get("format")), bytes.Clone(raw)
	default:
		o.Fail(dialect.Unsupported("text.format.type", "'text.format.type' must be text, json_object or json_schema, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
	}
	t.Adopt(o)
	f.Adopt(t)
}
