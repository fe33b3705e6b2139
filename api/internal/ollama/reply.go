package ollama

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
)

// The JSON of an answer, as a whole and as the lines of a stream. An answer of /api/chat
// has a message, one of /api/generate has a response.
type (
	answer struct {
		Model      string    `json:"model"`
		CreatedAt  string    `json:"created_at"`
		Message    *message  `json:"message,omitempty"`
		Response   *string   `json:"response,omitempty"`
		Thinking   string    `json:"thinking,omitempty"` // beside response
		Done       bool      `json:"done"`
		DoneReason string    `json:"done_reason,omitempty"`
		Logprobs   []logprob `json:"logprobs,omitempty"`
		*counts
	}
	message struct {
		Role     string     `json:"role"`
		Content  string     `json:"content"`
		Thinking string     `json:"thinking,omitempty"`
		Calls    []toolCall `json:"tool_calls,omitempty"`
	}
	toolCall struct {
		ID       string `json:"id"`
		Function struct {
			Index     int             `json:"index"`
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"` // an object
		} `json:"function"`
	}
	// counts end an answer. Durations are in nanoseconds.
	counts struct {
		Total          time.Duration `json:"total_duration"`
		Load           time.Duration `json:"load_duration"` // always 0: the model is loaded
		Prompt         int           `json:"prompt_eval_count"`
		PromptDuration time.Duration `json:"prompt_eval_duration"` // to the first token, with the time in the queue
		Answer         int           `json:"eval_count"`
		AnswerDuration time.Duration `json:"eval_duration"` // from the first token on
	}
	logprob struct {
		tokenLogprob
		Top []tokenLogprob `json:"top_logprobs,omitempty"`
	}
	tokenLogprob struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []int   `json:"bytes,omitempty"`
	}
)

// part is what an event adds to an answer, or all of it.
type part struct {
	thinking, text string
	calls          []toolCall
	logprobs       []logprob
}

// reply renders an answer.
type reply struct {
	service *dialect.Service
	out     *dialect.Writer
	model   string
	chat    bool // otherwise generate
	stream  bool
	start   time.Time
	first   time.Time // of the first token; zero before it
	finish  engine.FinishReason

	call     toolCall // that has begun
	argument []byte   // of it

	thinking, text strings.Builder // of an answer that is not streamed
	whole          part            // the rest of it
	logprobs       bool
}

func newReply(s *dialect.Service, r *request, chat bool) *reply {
	return &reply{service: s, model: r.model, chat: chat, stream: r.stream, start: s.Now(), logprobs: r.engine.Logprobs}
}

// begin is dialect.Call.Reply.
func (r *reply) begin(out *dialect.Writer) dialect.Reply {
	r.out = out
	return r
}

// loaded answers a request that only asks for a loaded model.
func (r *reply) loaded() *dialect.Call {
	a := r.answer(part{})
	a.Done, a.DoneReason = true, "load"
	return &dialect.Call{Now: a}
}

// answer returns the JSON of a part.
func (r *reply) answer(p part) answer {
	a := answer{Model: r.model, CreatedAt: timestamp(r.service.Now()), Logprobs: p.logprobs}
	if r.chat {
		a.Message = &message{Role: "assistant", Content: p.text, Thinking: p.thinking, Calls: p.calls}
	} else {
		a.Response, a.Thinking = &p.text, p.thinking
	}
	return a
}

// timestamp formats a time as the API does.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Event implements dialect.Reply.
func (r *reply) Event(e *run.Event) {
	if r.first.IsZero() && !e.Empty() {
		r.first = r.service.Now()
	}
	p := part{thinking: e.Reasoning, text: e.Text, calls: r.calls(e.Calls)}
	if r.logprobs {
		for _, t := range e.Tokens {
			p.logprobs = append(p.logprobs, r.logprob(t))
		}
	}
	if e.Finish != engine.FinishNone {
		r.finish = e.Finish
	}
	if !r.stream {
		r.thinking.WriteString(p.thinking)
		r.text.WriteString(p.text)
		r.whole.calls = append(r.whole.calls, p.calls...)
		r.whole.logprobs = append(r.whole.logprobs, p.logprobs...)
		return
	}
	if p.thinking != "" || p.text != "" || len(p.calls) > 0 || len(p.logprobs) > 0 {
		r.out.Line(r.answer(p))
	}
}

// calls returns the calls that end with an event. A call that was cut off has no end.
// Arguments that are not an object would be another call, so such a call is not sent
// either.
func (r *reply) calls(parts []run.Call) (out []toolCall) {
	for _, c := range parts {
		if c.Begun {
			r.call, r.argument = toolCall{ID: c.ID}, nil
			r.call.Function.Index, r.call.Function.Name = c.Index, c.Name
		}
		r.argument = append(r.argument, c.Arguments...)
		if c.Ended {
			if text := bytes.TrimSpace(r.argument); json.Valid(text) && dialect.KindOf(text) == "object" {
				r.call.Function.Arguments = text
				out = append(out, r.call)
			}
		}
	}
	return out
}

// logprob converts a token.
func (r *reply) logprob(t run.Token) logprob {
	one := func(id int32, b []byte, v float64) tokenLogprob {
		name := string(b)
		if len(b) == 0 {
			name = r.service.Tokenizer.Text(id)
		}
		l := tokenLogprob{Token: strings.ToValidUTF8(name, "\uFFFD"), Logprob: dialect.Logprob(v)}
		for _, c := range b {
			l.Bytes = append(l.Bytes, int(c))
		}
		return l
	}
	l := logprob{tokenLogprob: one(t.ID, t.Bytes, t.Logprob)}
	for _, a := range t.Top {
		l.Top = append(l.Top, one(a.ID, a.Bytes, a.Logprob))
	}
	return l
}

// Tick implements dialect.Reply. A silent stream can only send a line without a text.
func (r *reply) Tick(string) {
	if !r.out.Silent() {
		return
	}
	r.out.Line(r.answer(part{}))
	r.out.Silent() // a keep-alive is not an answer, so the next tick sends another
}

// End implements dialect.Reply.
func (r *reply) End(answers []run.Usage) {
	now := r.service.Now()
	if r.first.IsZero() {
		r.first = now
	}
	r.whole.thinking, r.whole.text = r.thinking.String(), r.text.String() // in a stream both are empty
	a := r.answer(r.whole)
	a.Done, a.DoneReason = true, "stop"
	if r.finish == engine.FinishLength {
		a.DoneReason = "length"
	}
	a.counts = &counts{
		Total: now.Sub(r.start), Prompt: answers[0].Prompt, PromptDuration: r.first.Sub(r.start),
		Answer: answers[0].Completion, AnswerDuration: now.Sub(r.first),
	}
	if r.stream {
		r.out.Line(a)
		return
	}
	r.out.JSON(http.StatusOK, a)
}
