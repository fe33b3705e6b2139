package responses

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
)

// reply renders a response, as a whole or as the events of a stream.
type reply struct {
	service  *dialect.Service
	out      *dialect.Writer
	stream   bool
	offers   map[string]offer
	response response
	number   int // of the next event
	begun    bool
	open     *item // the last item of the output while it grows
	text     []byte
	progress dialect.Progress
	finish   engine.FinishReason
}

func newReply(s *dialect.Service, r *request, q *engine.Request, stream bool) *reply {
	out := &reply{service: s, stream: stream, offers: r.offers}
	o := &out.response
	o.ID, o.Object, o.CreatedAt, o.Status, o.Model = "resp_"+s.NewID(), "response", s.Now().Unix(), "in_progress", r.model
	o.Instructions, o.Output, o.Tools, o.Metadata = r.instructions, []*item{}, r.offered(), struct{}{}
	o.ParallelToolCalls, o.ToolChoice, o.Truncation = r.parallel, json.RawMessage(`"auto"`), "disabled"
	o.Temperature, o.TopP = q.Sampling.Temperature, q.Sampling.TopP
	o.Reasoning.Effort = dialect.OrNull(r.effort)
	o.Text.Format = json.RawMessage(`{"type":"text"}`)
	if r.choice != nil {
		o.ToolChoice = r.choice
	}
	if r.shown != nil {
		o.Text.Format = r.shown
	}
	if q.MaxTokens > 0 {
		o.MaxOutputTokens = &q.MaxTokens
	}
	return out
}

// send sends an event of a stream.
func (r *reply) send(e event) {
	if !r.stream {
		return
	}
	e.Number = r.number
	r.number++
	r.out.Event(e.Type, e)
}

// begin sends the first events.
func (r *reply) begin() {
	if r.begun {
		return
	}
	r.begun = true
	for _, kind := range []string{"response.created", "response.in_progress"} {
		r.send(event{Type: kind, Response: &r.response})
	}
}

// Event implements dialect.Reply.
func (r *reply) Event(e *run.Event) {
	r.progress.Follow(e)
	r.begin()
	r.add("reasoning", e.Reasoning)
	r.add("message", e.Text)
	for i := range e.Calls {
		r.call(&e.Calls[i])
	}
	if e.Finish != engine.FinishNone {
		r.finish = e.Finish
		r.close(e.Finish != engine.FinishLength)
	}
}

// index returns the index of the open item.
func (r *reply) index() *int {
	n := len(r.response.Output) - 1
	return &n
}

var zero = 0

// start ends the open item and opens another.
func (r *reply) start(i item) {
	r.close(true)
	r.open = &i
	r.response.Output = append(r.response.Output, r.open)
	first := i // the item grows, but the event must not change
	r.send(event{Type: "response.output_item.added", OutputIndex: r.index(), Item: &first})
}

// add appends to a message or to reasoning.
func (r *reply) add(kind, text string) {
	if text == "" {
		return
	}
	if r.open == nil || r.open.Type != kind {
		i := item{Type: kind, Content: &[]part{}}
		if kind == "message" {
			i.ID, i.Role, i.Status = "msg_"+r.service.NewID(), "assistant", "in_progress"
		} else {
			i.ID, i.Summary = "rs_"+r.service.NewID(), &[]part{}
		}
		r.start(i)
		r.send(event{Type: "response.content_part.added", ItemID: r.open.ID, OutputIndex: r.index(), ContentIndex: &zero, Part: newPart(kind, "")})
	}
	r.text = append(r.text, text...)
	e := event{Type: "response.output_text.delta", ItemID: r.open.ID, OutputIndex: r.index(), ContentIndex: &zero, Delta: &text, Logprobs: noLogprobs}
	if kind == "reasoning" {
		e.Type, e.Logprobs = "response.reasoning_text.delta", nil
	}
	r.send(e)
}

// call appends to a call.
func (r *reply) call(c *run.Call) {
	if c.Begun {
		t, known := r.offers[c.Name]
		if !known {
			t = offer{kind: "function", name: c.Name}
		}
		i := item{Type: "function_call", ID: "fc_" + r.service.NewID(), Status: "in_progress", CallID: c.ID, Name: t.name, Namespace: t.namespace}
		empty := ""
		switch client := clientRunOf(t.kind); {
		case t.kind == "custom":
			i.Type, i.ID, i.Input = "custom_tool_call", "ctc_"+r.service.NewID(), &empty
		case client != nil:
			i.Type, i.ID, i.Name = client.call, client.id+r.service.NewID(), ""
			client.shape(&i, "{}")
		default:
			i.Arguments = empty
		}
		r.start(i)
	}
	if c.Arguments != "" {
		r.text = append(r.text, c.Arguments...)
		if r.open.Type == "function_call" {
			r.send(event{Type: "response.function_call_arguments.delta", ItemID: r.open.ID, OutputIndex: r.index(), Delta: &c.Arguments})
		}
	}
	if c.Ended {
		r.close(true)
	}
}

// close ends the open item. A call that was cut off gets no end and is not in the output,
// because it is not a call.
func (r *reply) close(whole bool) {
	i := r.open
	if i == nil {
		return
	}
	index := r.index()
	text := string(r.text)
	r.open, r.text = nil, nil
	i.Status = "completed"
	e := event{ItemID: i.ID, OutputIndex: index}
	switch i.Type {
	case "function_call":
		if !whole || !json.Valid([]byte(text)) {
			r.response.Output = r.response.Output[:*index]
			return
		}
		i.Arguments = text
		e.Type, e.Arguments, e.Name = "response.function_call_arguments.done", &text, i.Name
	case "custom_tool_call":
		var v map[string]string
		if !whole || json.Unmarshal([]byte(text), &v) != nil {
			r.response.Output = r.response.Output[:*index]
			return
		}
		input := v[customInput]
		i.Input = &input
		r.send(event{Type: "response.custom_tool_call_input.delta", ItemID: i.ID, OutputIndex: index, Delta: &input})
		e.Type, e.Input = "response.custom_tool_call_input.done", &input
	case "message", "reasoning":
		i.Content = &[]part{*newPart(i.Type, text)}
		e.Type, e.ContentIndex, e.Text, e.Logprobs = "response.output_text.done", &zero, &text, noLogprobs
		if i.Type == "reasoning" {
			i.Status, e.Type, e.Logprobs = "", "response.reasoning_text.done", nil
			i.Encrypted = sealed + base64.StdEncoding.EncodeToString([]byte(text))
		} else if !whole {
			i.Status = "incomplete"
		}
	default: // a tool that the client runs; its items have no events for parts of arguments
		if !whole || !json.Valid([]byte(text)) {
			r.response.Output = r.response.Output[:*index]
			return
		}
		clientRunOf(i.Type).shape(i, text)
		r.send(event{Type: "response.output_item.done", OutputIndex: index, Item: i})
		return
	}
	r.send(e)
	if i.Content != nil {
		r.send(event{Type: "response.content_part.done", ItemID: i.ID, OutputIndex: index, ContentIndex: &zero, Part: newPart(i.Type, text)})
	}
	r.send(event{Type: "response.output_item.done", OutputIndex: index, Item: i})
}

// Tick implements dialect.Reply.
func (r *reply) Tick(waits string) {
	if !r.out.Silent() {
		return
	}
	r.begin()
	r.out.Comment(r.progress.Comment(waits))
	// Codex counts a stream without events as idle, even if it has comments. The event
	// omits what the first event said, because tools are long.
	short := r.response
	short.Instructions, short.Tools = nil, []tool{}
	r.send(event{Type: "response.in_progress", Response: &short})
	r.out.Silent() // a keep-alive is not an answer, so the next tick sends another
}

// fail ends a stream that has begun. Clients try again by the code, after the time in the
// message.
func (r *reply) fail(e *dialect.Error) {
	f := &failure{Code: e.Code, Message: e.Message}
	if e.RetryAfter > 0 {
		f.Code = "rate_limit_exceeded"
		f.Message += fmt.Sprintf(" Please try again in %ds.", int(math.Ceil(e.RetryAfter.Seconds())))
	}
	r.response.Status, r.response.Error = "failed", f
	r.send(event{Type: "response.failed", Response: &r.response})
}

// End implements dialect.Reply.
func (r *reply) End(answers []run.Usage) {
	r.begin()
	u := &usage{InputTokens: answers[0].Prompt, OutputTokens: answers[0].Completion, TotalTokens: answers[0].Prompt + answers[0].Completion}
	u.InputDetails.CachedTokens, u.OutputDetails.ReasoningTokens = answers[0].Cached, answers[0].Reasoning
	r.response.Usage, r.response.Status = u, "completed"
	kind := "response.completed"
	if r.finish == engine.FinishLength {
		kind, r.response.Status = "response.incomplete", "incomplete"
		r.response.Incomplete = &incomplete{"max_output_tokens"}
	}
	if !r.stream {
		r.out.JSON(http.StatusOK, r.response)
		return
	}
	r.send(event{Type: kind, Response: &r.response})
}
