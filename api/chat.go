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

// chatRequest is a checked body of /v1/chat/completions.
type chatRequest struct {
	generation
	messages []prompt.Message
	thinking thinking
	goOn     bool // with the last message, in place of answering it
}

// parseChat reads the body of /v1/chat/completions.
func (s *server) parseChat(f *fields) (*chatRequest, *Error) {
	r := &chatRequest{generation: s.parseGeneration(f)}
	r.messages = parseMessages(f)
	r.thinking = parseThinking(f)
	r.goOn = parseGoOn(f)
	most := f.integer("max_tokens", 0, 1, math.MaxInt32)
	most = f.integer("max_completion_tokens", most, 1, math.MaxInt32) // the newer name wins
	r.limitTokens(f, most)
	r.request.Logprobs = f.boolean("logprobs", false)
	r.request.TopLogprobs = int(f.integer("top_logprobs", 0, 0, maxTopLogprobs))
	if r.request.TopLogprobs > 0 && !r.request.Logprobs {
		f.fail(invalid("top_logprobs", "invalid_value", "'top_logprobs' is only for \"logprobs\": true."))
	}
	return r, f.err
}

// The JSON of an answer, whole and in chunks.
type (
	chatCompletion struct {
		ID                string       `json:"id"`
		Object            string       `json:"object"`
		Created           int64        `json:"created"`
		Model             string       `json:"model"`
		SystemFingerprint string       `json:"system_fingerprint"`
		Choices           []chatChoice `json:"choices"`
		// Usage is left out of a stream, null in its chunks, or there.
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
	r, failed := s.parseChat(f)
	if failed != nil {
		s.fail(c, failed)
		return
	}
	ids, failed := s.render(r)
	if failed != nil {
		s.fail(c, failed)
		return
	}
	requests := make([]engine.Request, r.n)
	answers := make([]*chatAnswer, r.n)
	for i := range requests {
		requests[i] = r.choice(ids, i)
		answers[i] = s.newChatAnswer(r)
	}
	ctx := c.Request.Context()
	run, err := s.submit(ctx, requests)
	if err != nil {
		s.fail(c, s.engineError(err))
		return
	}
	defer run.close()
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
			s.broken(c, nil, err)
			return
		}
		answers[u.index].add(u.event)
	}
	for i, a := range answers {
		reply.Choices = append(reply.Choices, a.whole(i))
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

// streamChat sends the answers as they come.
func (s *server) streamChat(c *gin.Context, run *choices, r *chatRequest, chunk chatCompletion, answers []*chatAnswer) {
	chunk.Object = "chat.completion.chunk"
	if r.usageChunk {
		chunk.Usage = json.RawMessage("null")
	}
	out := &events{c: c}
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
			s.broken(c, out, err)
			return
		}
		if u.index < 0 {
			err = out.tick()
		} else {
			err = answers[u.index].stream(u, send)
		}
		if err != nil {
			s.broken(c, out, err)
			return
		}
	}
	if r.usageChunk {
		chunk.Choices = []chatChoice{}
		chunk.Usage = encode(chatUsage(run, answers))
		if err := out.send(chunk); err != nil {
			s.broken(c, out, err)
			return
		}
	}
	if err := out.done(); err != nil {
		s.broken(c, out, err)
	}
}

// chatAnswer puts one answer together.
type chatAnswer struct {
	server          *server
	request         *chatRequest
	splitter        *prompt.Splitter
	place           place
	reasoningTokens int
	opened          bool // the chunk with the role is out

	content   strings.Builder
	reasoning strings.Builder
	logprobs  chatLogprobs
	finish    engine.FinishReason
}

func (s *server) newChatAnswer(r *chatRequest) *chatAnswer {
	reasons := r.thinking.on && !r.goOn // a message to go on with has its reasoning
	return &chatAnswer{
		server: s, request: r, splitter: prompt.NewSplitter(reasons), place: newPlace(s.Tokenizer, reasons),
		logprobs: chatLogprobs{Content: []chatLogprob{}},
	}
}

// chatPiece is what one event adds to an answer.
type chatPiece struct {
	reasoning, content string
	logprobs           *chatLogprobs // nil when not asked for or no token came
	finish             engine.FinishReason
}

// take splits an event into reasoning and content.
func (a *chatAnswer) take(e engine.Event) chatPiece {
	p := chatPiece{finish: e.Finish}
	p.reasoning, p.content = a.splitter.Push(e.Text)
	if e.Finish != engine.FinishNone {
		reasoning, content := a.splitter.Flush()
		p.reasoning += reasoning
		p.content += content
	}
	for i, t := range e.Tokens {
		inside := a.place.reasoning(t)
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

// add collects an event of an answer that is sent as a whole.
func (a *chatAnswer) add(e engine.Event) {
	p := a.take(e)
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

// whole is the choice of an answer that has ended.
func (a *chatAnswer) whole(index int) chatChoice {
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

// stream sends what an event adds: the role before anything else, reasoning
// and content in chunks of their own, the finish reason in an empty last one.
func (a *chatAnswer) stream(u update, send func(chatChoice) error) error {
	p := a.take(u.event)
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
		if p.content == "" { // else they go with the content
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
