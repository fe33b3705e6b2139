package dialect

import (
	"ringmaster/api/run"
	"ringmaster/constraint"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Chat makes the job that answers a conversation with one answer per request. It sets the
// requests' prompts, branches and constraints. The conversation is that of a body; answer is the
// form of the answers, nil for any. callID is the prefix of the ids of calls. The error
// is ErrCancelled if the request has ended.
func (s *Service) Chat(f *Fields, c *chat.Conversation, answer *Form, requests []engine.Request, callID string) (run.Job, *Error) {
	ids, branches, failed := s.Render(f, c)
	if failed != nil {
		return run.Job{}, failed
	}
	var grammar *constraint.Grammar
	// The engine refuses a prompt that is too long, so a grammar is made only for tools
	// that fit the context.
	if s.Model.ContextLength == 0 || len(ids) < s.Model.ContextLength {
		if grammar, failed = s.Grammars.forChat(f.Ctx, s.Model.Format, c, answer); failed != nil {
			return run.Job{}, failed
		}
	}
	format := s.Model.Format
	// The parser outlives the request's body, so it gets the options without the
	// messages.
	kept := &chat.Conversation{Options: c.Options}
	job := run.Job{
		Requests: requests,
		Parser:   func() *chat.Parser { return format.Parser(kept) },
		CallID:   func() string { return callID + s.NewID() },
	}
	var visible map[int32]string
	for _, name := range format.Markers() {
		if id, ok := s.Tokenizer.ID(name); ok && len(s.Tokenizer.Bytes(id)) == 0 {
			if visible == nil {
				visible = map[int32]string{}
			}
			visible[id] = name
		}
	}
	var banned []int32
	if len(c.Functions) == 0 { // forbids calls, because no call would be valid
		for _, name := range format.CallMarkers() {
			if id, ok := s.Tokenizer.ID(name); ok {
				banned = append(banned, id)
			}
		}
	}
	s.Grammars.constrain(requests, grammar)
	s.Relate(c.Messages, "", requests)
	for i := range requests {
		r := &requests[i]
		r.Prompt, r.Branches, r.Visible, r.Banned = ids, branches, visible, banned
		if len(r.Stop) > 0 && (len(c.Functions) > 0 || format.Thinks(c.Thinking)) { // otherwise all is text
			p := format.Parser(kept)
			p.StateOnly = true // it runs between the steps, where all requests wait for it
			r.StopsIn = func(token []byte) bool {
				p.Push(string(token))
				return p.Answering()
			}
		}
	}
	return job, nil
}
