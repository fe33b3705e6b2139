package anthropic

import (
	"encoding/json"
	"net/http"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
)

// The JSON of a message.
type (
	message struct {
		ID         string   `json:"id"`
		Type       string   `json:"type"`
		Role       string   `json:"role"`
		Model      string   `json:"model"`
		Content    []*block `json:"content"`
		StopReason *string  `json:"stop_reason"`
		StopText   *string  `json:"stop_sequence"`
		Usage      usage    `json:"usage"`
	}
	// block has the members of its type only.
	block struct {
		Type      string          `json:"type"`
		Text      *string         `json:"text,omitempty"`
		Thinking  *string         `json:"thinking,omitempty"`
		Signature *string         `json:"signature,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
	}
	// usage counts the prompt in parts: InputTokens excludes what the prefix cache had.
	usage struct {
		InputTokens   int `json:"input_tokens"`
		CacheCreation int `json:"cache_creation_input_tokens"`
		CacheRead     int `json:"cache_read_input_tokens"`
		OutputTokens  int `json:"output_tokens"`
	}
)

// reply renders a message, as a whole or as the events of a stream.
type reply struct {
	out    *dialect.Writer
	stream bool
	hide   bool // leave out the texts of the reasoning
	// promptOnly is set when max_tokens is 0: the answer is empty. The engine still
	// generates one token, because only such a request leaves its prompt in the cache.
	promptOnly bool
	signature  string // of blocks of thinking: clients drop a block without one
	prompt     int    // tokens
	message    message
	started    bool // message_start has been sent
	open       int  // type of the open block as an index of message.Content, -1: none
	parts      []byte
	finish     engine.FinishReason
	stopText   string
	progress   dialect.Progress
}

func newUsage(u run.Usage) usage {
	return usage{InputTokens: u.Prompt - u.Cached, CacheRead: u.Cached, OutputTokens: u.Completion}
}

// event has the members that all events of a stream share.
type event struct {
	Type    string   `json:"type"`
	Message *message `json:"message,omitempty"`
	Index   *int     `json:"index,omitempty"`
	Block   *block   `json:"content_block,omitempty"`
	Delta   any      `json:"delta,omitempty"`
	Usage   *usage   `json:"usage,omitempty"`
}

func (r *reply) send(e event) {
	if r.stream {
		r.out.Event(e.Type, e)
	}
}

// start sends the first event.
func (r *reply) start(u run.Usage) {
	if r.started {
		return
	}
	r.started = true
	u.Prompt = max(u.Prompt, r.prompt)
	r.message.Usage = newUsage(u)
	m := r.message
	r.send(event{Type: "message_start", Message: &m})
}

// Event implements dialect.Reply.
func (r *reply) Event(e *run.Event) {
	r.progress.Follow(e)
	r.start(e.Usage)
	if r.promptOnly {
		return
	}
	r.text("thinking", e.Reasoning)
	r.text("text", e.Text)
	for i := range e.Calls {
		r.call(&e.Calls[i])
	}
	if e.Finish != engine.FinishNone {
		r.finish, r.stopText = e.Finish, e.StopText
		r.close()
	}
}

// begin closes the open block and opens another.
func (r *reply) begin(b block) {
	r.close()
	r.open = len(r.message.Content)
	r.message.Content = append(r.message.Content, &b)
	first := b // the whole message is filled in later, but the event must not change
	r.send(event{Type: "content_block_start", Index: &r.open, Block: &first})
}

// text appends to a block of text or thinking; if another block is open, it opens one
// first.
func (r *reply) text(kind, add string) {
	if add == "" {
		return
	}
	if r.open < 0 || r.message.Content[r.open].Type != kind {
		b, empty := block{Type: kind}, ""
		if kind == "text" {
			b.Text = &empty
		} else {
			b.Thinking, b.Signature = &empty, &empty
		}
		r.begin(b)
	}
	if kind == "thinking" && r.hide {
		return
	}
	if !r.stream {
		r.parts = append(r.parts, add...)
		return
	}
	delta := map[string]string{"type": kind + "_delta", kind: add}
	r.send(event{Type: "content_block_delta", Index: &r.open, Delta: delta})
}

// call appends to a tool call.
func (r *reply) call(c *run.Call) {
	if c.Begun {
		r.begin(block{Type: "tool_use", ID: c.ID, Name: c.Name, Input: json.RawMessage("{}")})
	}
	if c.Arguments != "" {
		if !r.stream {
			r.parts = append(r.parts, c.Arguments...)
		} else {
			r.send(event{Type: "content_block_delta", Index: &r.open, Delta: map[string]string{"type": "input_json_delta", "partial_json": c.Arguments}})
		}
	}
	if c.Ended {
		r.close()
	}
}

// close ends the open block.
func (r *reply) close() {
	if r.open < 0 {
		return
	}
	b := r.message.Content[r.open]
	index := r.open
	text := string(r.parts)
	r.open, r.parts = -1, nil
	switch b.Type {
	case "thinking":
		b.Thinking, b.Signature = &text, &r.signature
		r.send(event{Type: "content_block_delta", Index: &index, Delta: map[string]string{"type": "signature_delta", "signature": r.signature}})
	case "text":
		b.Text = &text
	case "tool_use":
		if json.Valid([]byte(text)) {
			b.Input = json.RawMessage(text)
		} else if !r.stream { // it was cut short, and a call without its arguments would be another call
			r.message.Content = r.message.Content[:index]
		}
	}
	r.send(event{Type: "content_block_stop", Index: &index})
}

// Tick implements dialect.Reply.
func (r *reply) Tick(waits string) {
	if !r.out.Silent() {
		return
	}
	r.start(run.Usage{})
	r.out.Comment(r.progress.Comment(waits))
	r.send(event{Type: "ping"})
	r.out.Silent() // a ping is not an answer, so the next tick sends another
}

// End implements dialect.Reply.
func (r *reply) End(answers []run.Usage) {
	u := newUsage(answers[0])
	reason := "end_turn"
	switch {
	case r.promptOnly:
		u.OutputTokens, reason = 0, "max_tokens"
	case r.finish == engine.FinishLength:
		reason = "max_tokens"
	case r.stopText != "":
		reason = "stop_sequence"
	case r.finish == run.FinishCalls:
		reason = "tool_use"
	}
	r.message.StopReason, r.message.StopText, r.message.Usage = &reason, dialect.OrNull(r.stopText), u
	if !r.stream {
		r.out.JSON(http.StatusOK, r.message)
		return
	}
	r.start(answers[0])
	delta := struct {
		StopReason *string `json:"stop_reason"`
		StopText   *string `json:"stop_sequence"`
	}{r.message.StopReason, r.message.StopText}
	r.send(event{Type: "message_delta", Delta: delta, Usage: &u})
	r.send(event{Type: "message_stop"})
}
