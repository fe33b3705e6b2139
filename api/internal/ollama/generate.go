package ollama

import (
	"ringmaster/api/dialect"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Generate parses a request to /api/generate.
func Generate(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	r := parse(s, f)
	prompt, system, raw := f.String("prompt", ""), f.String("system", ""), f.Bool("raw", false)
	if raw && system != "" {
		f.Fail(dialect.Invalid("system", "invalid_value", "'system' is not allowed with raw, which takes the prompt as it is."))
	}
	if f.Err != nil {
		return nil, f.Err
	}
	reply := newReply(s, r, false)
	if prompt == "" {
		return reply.loaded(), nil
	}
	if raw {
		return reply.raw(f, prompt, r)
	}
	c := &chat.Conversation{Options: r.options(nil)}
	if system != "" {
		c.Messages = append(c.Messages, chat.Message{Role: chat.System, Content: system})
	}
	c.Messages = append(c.Messages, chat.Message{Role: chat.User, Content: prompt})
	return reply.job(f, c, r)
}

// raw makes the job that continues a text as it is. The names of control tokens in it
// become these tokens, and all of the answer is text.
func (r *reply) raw(f *dialect.Fields, text string, q *request) (*dialect.Call, *dialect.Error) {
	s := r.service
	ids, failed := s.Encode(f.Ctx, text, true)
	if failed != nil {
		return nil, failed
	}
	request := q.engine
	if bos, ok := s.Tokenizer.BOS(); ok && s.Tokenizer.AddBOS() && (len(ids) == 0 || ids[0] != bos) {
		ids = append([]int32{bos}, ids...)
	}
	request.Prompt = ids
	call := &dialect.Call{Stream: q.stream, Reply: r.begin, Ignored: f.Unread(harmless)}
	call.Job.Requests = []engine.Request{request}
	if failed := s.Grammars.Constrain(f.Ctx, call.Job.Requests, q.answer); failed != nil {
		return nil, failed
	}
	return call, nil
}
