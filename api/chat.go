package api

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"ringmaster/engine"
	"ringmaster/model/prompt"
)

// chatRequest is a validated request to /v1/chat/completions.
type chatRequest struct {
	generation
	messages      []prompt.Message
	thinking      thinking
	continueFinal bool // extend the last message instead of answering it
}

// parseChat reads the body of /v1/chat/completions.
func (s *server) parseChat(f *fields) (*chatRequest, *Error) {
	r := &chatRequest{generation: s.parseGeneration(f)}
	r.messages = parseMessages(f, s.MaxMessages)
	r.thinking = parseThinking(f)
	r.continueFinal = parseContinueFinal(f, s.MaxMessages)
	limit := f.integer("max_tokens", 0, 1, math.MaxInt32)
	limit = f.integer("max_completion_tokens", limit, 1, math.MaxInt32) // the newer name wins
	r.limitTokens(f, limit)
	r.request.Logprobs = f.boolean("logprobs", false)
	r.request.TopLogprobs = int(f.integer("top_logprobs", 0, 0, maxTopLogprobs))
	if r.request.TopLogprobs > 0 && !r.request.Logprobs {
		f.fail(invalid("top_logprobs", "invalid_value", "'top_logprobs' is only allowed when 'logprobs' is true."))
	}
	return r, f.err
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
		// Usage is absent from the chunks of a stream, or with include_usage
		// null in all but the last.
		Usage json.RawMessage `json:"usage,omitempty"`
	}
	chatChoice struct {
		Index        int           `json:"index"`
		Message      *chatMessage  `json:"message,omitempty"`
		Delta        *chatDelta    `json:"delta,omitempty"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
	chatMessage struct {
		Role      string  `json:"role"`
		Content   string  `json:"content"`
		Refusal   *string `json:"refusal"`
		Reasoning *string `json:"reasoning_content,omitempty"`
	}
	chatDelta struct {
		Role      string  `json:"role,omitempty"`
		Content   *string `json:"content,omitempty"`
		Reasoning string  `json:"reasoning_content,omitempty"`
	}
)

func (s *server) chatCompletions(c *gin.Context) {
	f, failed := s.body(c)
	if failed != nil {
		s.fail(c, failed)
		return
	}
	defer f.release()
	if err := s.Engine.Busy(s.tenant(c)); err != nil {
		s.fail(c, s.engineError(err)) // before the prompt is rendered and tokenized
		return
	}
	r, failed := s.parseChat(f)
	if failed != nil {
		s.failRun(c, nil, failed)
		return
	}
	r.request.CacheScope, r.request.Tenant = s.scope(c), s.tenant(c)
	ctx := c.Request.Context()
	ids, err := s.render(ctx, r)
	if err != nil {
		s.failRun(c, nil, err)
		return
	}
	requests := make([]engine.Request, r.n)
	answers := make([]*chatAnswer, r.n)
	for i := range requests {
		requests[i] = r.choice(ids, i)
		answers[i] = s.newChatAnswer(r)
	}
	run, err := s.submit(ctx, requests)
	if err != nil {
		s.fail(c, s.engineError(err))
		return
	}
	defer run.close()
	r.messages = nil // the answer may take long, and needs none of the body
	f.release()
	reply := chatCompletion{
		ID: "chatcmpl-" + s.NewID(), Object: "chat.completion", Created: s.Clock.Now().Unix(),
		Model: s.Model.ID, SystemFingerprint: s.Model.Fingerprint,
	}
	if r.stream {
		s.streamChat(c, run, r, reply, answers)
		return
	}
	for {
		u, err := run.next(ctx, nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.failRun(c, nil, err)
			return
		}
		answers[u.index].add(u.event)
	}
	for i, a := range answers {
		reply.Choices = append(reply.Choices, a.choice(i))
	}
	reply.Usage = encode(chatUsage(run, answers))
	s.writeJSON(c, http.StatusOK, reply)
}

func chatUsage(run *choices, answers []*chatAnswer) usage {
	var total usage
	total.add(run.usage)
	for _, a := range answers {
		total.CompletionDetails.ReasoningTokens += a.reasoningTokens
	}
	return total
}

// streamChat sends the answers as they are generated.
func (s *server) streamChat(c *gin.Context, run *choices, r *chatRequest, chunk chatCompletion, answers []*chatAnswer) {
	chunk.Object = "chat.completion.chunk"
	if r.usageChunk {
		chunk.Usage = json.RawMessage("null")
	}
	out := &sseWriter{c: c}
	send := func(choice chatChoice) error {
		chunk.Choices = []chatChoice{choice}
		return out.send(chunk)
	}
	ticks, stop := s.Clock.Ticker(s.KeepAlive)
	defer stop()
	for {
		u, err := run.next(c.Request.Context(), ticks)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.failRun(c, out, err)
			return
		}
		if u.index < 0 {
			err = out.tick()
		} else {
			err = answers[u.index].stream(u, send)
		}
		if err != nil {
			s.failRun(c, out, err)
			return
		}
	}
	if r.usageChunk {
		chunk.Choices = []chatChoice{}
		chunk.Usage = encode(chatUsage(run, answers))
		if err := out.send(chunk); err != nil {
			s.failRun(c, out, err)
			return
		}
	}
	if err := out.done(); err != nil {
		s.failRun(c, out, err)
	}
}

// chatAnswer turns the events of one answer into its choice or its chunks.
type chatAnswer struct {
	server          *server
	request         *chatRequest
	splitter        *prompt.Splitter
	tracker         reasoningTracker
	reasoningTokens int
	opened          bool // the chunk with the role has been sent

	content   strings.Builder
	reasoning strings.Builder
	logprobs  chatLogprobs
	finish    engine.FinishReason
}

func (s *server) newChatAnswer(r *chatRequest) *chatAnswer {
	reasons := r.thinking.on && !r.continueFinal // a message to continue already has its reasoning
	return &chatAnswer{
		server: s, request: r, splitter: prompt.NewSplitter(reasons), tracker: newReasoningTracker(s.Tokenizer, reasons),
		logprobs: chatLogprobs{Content: []chatLogprob{}},
	}
}

// chatPiece is what one event adds to an answer.
type chatPiece struct {
	reasoning, content string
	logprobs           *chatLogprobs // nil if not requested or the event has no tokens
	finish             engine.FinishReason
}

// split separates the reasoning and the content of an event.
func (a *chatAnswer) split(e engine.Event) chatPiece {
	p := chatPiece{finish: e.Finish}
	p.reasoning, p.content = a.splitter.Push(e.Text)
	if e.Finish != engine.FinishNone {
		reasoning, content := a.splitter.Flush()
		p.reasoning += reasoning
		p.content += content
	}
	for i, t := range e.Tokens {
		inside := a.tracker.reasoning(t)
		if inside {
			a.reasoningTokens++
		}
		if !a.request.request.Logprobs || a.server.endToken(e, i) {
			continue
		}
		if p.logprobs == nil {
			p.logprobs = &chatLogprobs{Content: []chatLogprob{}}
		}
		list := &p.logprobs.Content
		if inside {
			list = &p.logprobs.Reasoning
		}
		*list = append(*list, a.server.chatLogprob(t))
	}
	return p
}

// add accumulates an event of an answer that is not streamed.
func (a *chatAnswer) add(e engine.Event) {
	p := a.split(e)
	a.reasoning.WriteString(p.reasoning)
	a.content.WriteString(p.content)
	if p.logprobs != nil {
		a.logprobs.Content = append(a.logprobs.Content, p.logprobs.Content...)
		a.logprobs.Reasoning = append(a.logprobs.Reasoning, p.logprobs.Reasoning...)
	}
	if p.finish != engine.FinishNone {
		a.finish = p.finish
	}
}

// choice returns the accumulated answer once it is complete.
func (a *chatAnswer) choice(index int) chatChoice {
	m := &chatMessage{Role: "assistant", Content: a.content.String()}
	if a.request.thinking.on {
		r := a.reasoning.String()
		m.Reasoning = &r
	}
	choice := chatChoice{Index: index, Message: m, FinishReason: orNull(string(a.finish))}
	if a.request.request.Logprobs {
		choice.Logprobs = &a.logprobs
	}
	return choice
}

// stream sends what an event adds: first the role, then reasoning and content in
// separate chunks, and the finish reason in a last chunk of its own.
func (a *chatAnswer) stream(u update, send func(chatChoice) error) error {
	p := a.split(u.event)
	if a.opened && p == (chatPiece{}) {
		return nil
	}
	if !a.opened {
		a.opened = true
		empty := ""
		if err := send(chatChoice{Index: u.index, Delta: &chatDelta{Role: "assistant", Content: &empty}}); err != nil {
			return err
		}
	}
	if p.reasoning != "" {
		d := chatChoice{Index: u.index, Delta: &chatDelta{Reasoning: p.reasoning}}
		if p.content == "" { // otherwise the log-probabilities go with the content
			d.Logprobs, p.logprobs = p.logprobs, nil
		}
		if err := send(d); err != nil {
			return err
		}
	}
	if p.content != "" || p.logprobs != nil {
		if err := send(chatChoice{Index: u.index, Delta: &chatDelta{Content: &p.content}, Logprobs: p.logprobs}); err != nil {
			return err
		}
	}
	if p.finish != engine.FinishNone {
		return send(chatChoice{Index: u.index, Delta: &chatDelta{}, FinishReason: orNull(string(p.finish))})
	}
	return nil
}
