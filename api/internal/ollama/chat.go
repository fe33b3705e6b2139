package ollama

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Chat parses a request to /api/chat.
func Chat(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	r := parse(s, f)
	c := &chat.Conversation{Options: r.options(s.Functions(f))}
	var open openCalls
	f.EachObject("messages", s.MaxMessages, func(_ int, m *dialect.Fields) {
		message := parseMessage(m)
		open.follow(&message, m.String("tool_name", ""))
		c.Messages = append(c.Messages, message)
	})
	if f.Err != nil {
		return nil, f.Err
	}
	reply := newReply(s, r, true)
	if len(c.Messages) == 0 {
		return reply.loaded(), nil
	}
	// A last message of the assistant is the beginning of the answer.
	if last := &c.Messages[len(c.Messages)-1]; last.Role == chat.Assistant && len(last.Calls) == 0 {
		c.Ending = chat.Continue
	}
	return reply.job(f, c, r)
}

// job makes the job that answers a conversation.
func (r *reply) job(f *dialect.Fields, c *chat.Conversation, q *request) (*dialect.Call, *dialect.Error) {
	call := &dialect.Call{Stream: q.stream, Ignored: f.Unread(harmless)}
	var failed *dialect.Error
	if call.Job, failed = r.service.Chat(f, c, q.answer, []engine.Request{q.engine}, "call_"); failed != nil {
		return nil, failed
	}
	call.Reply = r.begin
	return call, nil
}

// parseMessage reads a message.
func parseMessage(f *dialect.Fields) chat.Message {
	m := chat.Message{Role: chat.Role(strings.ToLower(f.String("role", ""))), Content: f.String("content", "")}
	f.Reject(unsupportedInMessages)
	switch m.Role {
	case chat.System, chat.User:
	case chat.Assistant:
		m.Reasoning = f.String("thinking", "")
		m.Calls = parseCalls(f)
	case chat.Tool:
		m.CallID = f.String("tool_call_id", "")
	case "":
		f.Missing("role")
	default:
		f.Fail(dialect.Invalid(f.Path+"role", "invalid_value", "'%srole' must be system, user, assistant or tool, not '%s'.", f.Path, dialect.Excerpt(json.RawMessage(m.Role))))
	}
	return m
}

// unsupportedInMessages lists the fields of messages that must have a neutral value.
var unsupportedInMessages = []dialect.UnsupportedField{{Name: "images", Neutral: []string{`[]`}, Remedy: "Only text is supported."}}

// parseCalls reads "tool_calls". Older clients send no ids, so these calls get one by
// which results find them.
func parseCalls(f *dialect.Fields) []chat.Call {
	var out []chat.Call
	f.EachObject("tool_calls", dialect.MaxCalls, func(i int, o *dialect.Fields) {
		call := chat.Call{ID: o.String("id", ""), Arguments: "{}"}
		if call.ID == "" {
			call.ID = fmt.Sprintf("%s%d", f.Path, i) // its path in the body is unique
		}
		fn := o.Object("function")
		call.Name = dialect.CalledName(fn.String("name", ""))
		if raw := fn.RawObject("arguments"); raw != nil {
			call.Arguments = string(raw)
		}
		o.Adopt(fn)
		out = append(out, call)
	})
	return out
}

// openCalls are the calls of the assistant's last turn that have no result yet.
type openCalls []chat.Call

// follow takes the next message, and finds the call of a result without an id.
func (o *openCalls) follow(m *chat.Message, name string) {
	switch m.Role {
	case chat.Assistant:
		*o = slices.Clone(m.Calls)
	case chat.Tool:
		i := slices.IndexFunc(*o, func(c chat.Call) bool {
			if m.CallID != "" {
				return c.ID == m.CallID
			}
			return name == "" || c.Name == name
		})
		if i >= 0 {
			m.CallID = (*o)[i].ID
			*o = slices.Delete(*o, i, i+1)
		}
	default:
		*o = nil
	}
}
