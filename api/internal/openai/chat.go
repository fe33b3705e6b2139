package openai

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// Chat parses a request to /v1/chat/completions: it renders and tokenizes the
// conversation, makes the grammar of the answer, and prepares the reply.
func Chat(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	g := parseGeneration(s, f)
	c := &chat.Conversation{}
	messages, continues := parseMessages(f, s.MaxMessages)
	c.Messages = messages
	if f.Bool("continue_final_message", continues) || continues {
		c.Ending = chat.Continue
	}
	parseThinking(f, c)
	parseTools(s, f, c)
	c.Schema = g.shown
	limit := f.Integer("max_tokens", 0, 1, math.MaxInt32)
	limit = f.Integer("max_completion_tokens", limit, 1, math.MaxInt32) // the newer name wins
	g.limitTokens(f, limit)
	g.request.Logprobs = f.Bool("logprobs", false)
	g.request.TopLogprobs = int(f.Integer("top_logprobs", 0, 0, maxTopLogprobs))
	if g.request.TopLogprobs > 0 && !g.request.Logprobs {
		f.Fail(dialect.Invalid("top_logprobs", "invalid_value", "'top_logprobs' is only allowed when 'logprobs' is true."))
	}
	if f.Err != nil {
		return nil, f.Err
	}
	call := &dialect.Call{Stream: g.stream, Ignored: f.Unread(harmless)}
	var requests []engine.Request
	for i := range g.n {
		requests = append(requests, g.choice(nil, i))
	}
	var failed *dialect.Error
	if call.Job, failed = s.Chat(f, c, g.answer, requests, "call_"); failed != nil {
		return nil, failed
	}
	reply := &chatReply{
		service: s, stream: g.stream, logprobs: g.request.Logprobs, usageChunk: g.usageChunk, answers: make([]chatAnswer, g.n),
		object: chatCompletion{
			ID: "chatcmpl-" + s.NewID(), Object: "chat.completion", Created: s.Now().Unix(),
			Model: g.model, SystemFingerprint: s.Model.Fingerprint,
		},
	}
	if g.expected != "" {
		s.Relate(c.Messages, g.expected, call.Job.Requests)
	}
	reply.predicted = g.expected != ""
	reply.reasons = s.Model.Format.Thinks(c.Thinking)
	call.Reply = func(out *dialect.Writer) dialect.Reply { return reply.begin(out) }
	return call, nil
}

// The JSON of a chat completion, as a whole and as the chunks of a stream.
type (
	chatCompletion struct {
		ID                string       `json:"id"`
		Object            string       `json:"object"`
		Created           int64        `json:"created"`
		Model             string       `json:"model"`
		SystemFingerprint string       `json:"system_fingerprint"`
		Choices           []chatChoice `json:"choices"`
		// Usage is absent from the chunks of a stream; with include_usage it is null in
		// all but the last.
		Usage json.RawMessage `json:"usage,omitempty"`
		// Timings is in the last chunk of a stream.
		Timings *timings `json:"timings,omitempty"`
	}
	chatChoice struct {
		Index        int           `json:"index"`
		Message      *chatMessage  `json:"message,omitempty"`
		Delta        *chatDelta    `json:"delta,omitempty"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
	chatMessage struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"` // null where there are only calls
		Refusal   *string    `json:"refusal"`
		Reasoning *string    `json:"reasoning_content,omitempty"`
		Calls     []toolCall `json:"tool_calls,omitempty"`
	}
	chatDelta struct {
		Role      string     `json:"role,omitempty"`
		Content   *string    `json:"content,omitempty"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		Calls     []toolCall `json:"tool_calls,omitempty"`
	}
)

// chatReply renders the choices of a chat completion.
type chatReply struct {
	service    *dialect.Service
	out        *dialect.Writer
	stream     bool
	logprobs   bool
	usageChunk bool
	predicted  bool // the client sent a prediction
	reasons    bool // the messages have a reasoning_content, even an empty one
	object     chatCompletion
	answers    []chatAnswer
	progress   dialect.Progress
}

// chatAnswer is one of the choices so far.
type chatAnswer struct {
	opened    bool // the chunk with the role has been sent
	content   strings.Builder
	reasoning strings.Builder
	calls     []chat.Call
	logprobs  chatLogprobs
	finish    engine.FinishReason
	usage     run.Usage // with the last event
}

func (r *chatReply) begin(out *dialect.Writer) dialect.Reply {
	r.out = out
	if r.stream {
		r.object.Object = "chat.completion.chunk"
		if r.usageChunk {
			r.object.Usage = json.RawMessage("null")
		}
	}
	return r
}

// Event implements dialect.Reply.
func (r *chatReply) Event(e *run.Event) {
	r.progress.Follow(e)
	logprobs := r.chatLogprobs(e.Tokens)
	if r.stream {
		r.chunks(e, logprobs)
		return
	}
	a := &r.answers[e.Answer]
	a.reasoning.WriteString(e.Reasoning)
	a.content.WriteString(e.Text)
	for _, c := range e.Calls {
		if c.Begun {
			a.calls = append(a.calls, chat.Call{ID: c.ID, Name: c.Name})
		}
		a.calls[c.Index].Arguments += c.Arguments
	}
	if logprobs != nil {
		a.logprobs.Content = append(a.logprobs.Content, logprobs.Content...)
		a.logprobs.Reasoning = append(a.logprobs.Reasoning, logprobs.Reasoning...)
	}
	if e.Finish != engine.FinishNone {
		a.finish = e.Finish
	}
}

// chatLogprobs returns the logprobs object of an event, nil if none was requested or the
// event has no tokens.
func (r *chatReply) chatLogprobs(tokens []run.Token) *chatLogprobs {
	if !r.logprobs || len(tokens) == 0 {
		return nil
	}
	l := &chatLogprobs{Content: []chatLogprob{}}
	for _, t := range tokens {
		list := &l.Content
		if t.Reasoning {
			list = &l.Reasoning
		}
		*list = append(*list, newChatLogprob(r.service, t))
	}
	return l
}

// chunks sends what an event adds: first the role, then reasoning and content in separate
// chunks, then the finish reason in its own chunk.
func (r *chatReply) chunks(e *run.Event, logprobs *chatLogprobs) {
	send := func(choice chatChoice) {
		choice.Index = e.Answer
		r.object.Choices = []chatChoice{choice}
		r.out.Data(r.object)
	}
	if a := &r.answers[e.Answer]; !a.opened {
		a.opened = true
		empty := ""
		send(chatChoice{Delta: &chatDelta{Role: "assistant", Content: &empty}})
	}
	if e.Reasoning != "" {
		d := chatChoice{Delta: &chatDelta{Reasoning: e.Reasoning}}
		if e.Text == "" { // otherwise the log-probabilities go with the content
			d.Logprobs, logprobs = logprobs, nil
		}
		send(d)
	}
	if e.Text != "" || logprobs != nil {
		send(chatChoice{Delta: &chatDelta{Content: &e.Text}, Logprobs: logprobs})
	}
	for _, c := range e.Calls {
		for _, part := range chunksOf(c) {
			send(chatChoice{Delta: &chatDelta{Calls: []toolCall{part}}})
		}
	}
	if e.Finish != engine.FinishNone {
		r.answers[e.Answer].usage = e.Usage
		if !r.usageChunk { // otherwise a later chunk is the last
			r.object.Timings = r.timings()
		}
		send(chatChoice{Delta: &chatDelta{}, FinishReason: dialect.OrNull(string(e.Finish))})
	}
}

// timings returns the times of all choices when the last of them has ended, otherwise nil.
func (r *chatReply) timings() *timings {
	ended := make([]run.Usage, len(r.answers))
	for i := range r.answers {
		ended[i] = r.answers[i].usage
	}
	return newTimings(ended)
}

// chunksOf splits what an event adds to a call, because the name is sent in its own
// chunk.
func chunksOf(c run.Call) (out []toolCall) {
	if c.Begun {
		out = append(out, toolCall{Index: &c.Index, ID: c.ID, Type: "function", Function: toolFunction{Name: c.Name}})
	}
	if c.Arguments != "" {
		out = append(out, toolCall{Index: &c.Index, Function: toolFunction{Arguments: c.Arguments}})
	}
	return out
}

// Tick implements dialect.Reply.
func (r *chatReply) Tick(waits string) { tick(r.out, &r.progress, waits) }

// tick sends a comment on a silent stream so that it stays open.
func tick(out *dialect.Writer, progress *dialect.Progress, waits string) {
	if out.Silent() {
		out.Comment(progress.Comment(waits))
	}
}

// End implements dialect.Reply.
func (r *chatReply) End(answers []run.Usage) {
	total := usage{}
	if r.predicted {
		total.predict()
	}
	total.add(answers)
	if r.stream {
		if r.usageChunk {
			r.object.Choices = []chatChoice{}
			r.object.Usage, r.object.Timings = dialect.Marshal(total), newTimings(answers)
			r.out.Data(r.object)
		}
		r.out.Done()
		return
	}
	for i := range r.answers {
		a := &r.answers[i]
		content := a.content.String()
		m := &chatMessage{Role: "assistant", Content: &content}
		if len(a.calls) > 0 && content == "" {
			m.Content = nil
		}
		for _, c := range a.calls {
			m.Calls = append(m.Calls, toolCall{ID: c.ID, Type: "function", Function: toolFunction{c.Name, c.Arguments}})
		}
		if r.reasons {
			reasoning := a.reasoning.String()
			m.Reasoning = &reasoning
		}
		choice := chatChoice{Index: i, Message: m, FinishReason: dialect.OrNull(string(a.finish))}
		if r.logprobs {
			if a.logprobs.Content == nil {
				a.logprobs.Content = []chatLogprob{}
			}
			choice.Logprobs = &a.logprobs
		}
		r.object.Choices = append(r.object.Choices, choice)
	}
	r.object.Usage, r.object.Timings = dialect.Marshal(total), newTimings(answers)
	r.out.JSON(http.StatusOK, r.object)
}
