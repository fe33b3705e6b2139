package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"ringmaster/engine"
)

// defaultCompletionTokens is OpenAI's for this endpoint.
const defaultCompletionTokens = 16

// completionRequest is a validated request to /v1/completions.
type completionRequest struct {
	generation
	prompts []textPrompt
	echo    bool
	// promptOnly is set when max_tokens is 0: the answer is empty. The engine
	// still generates one token, which is discarded.
	promptOnly bool
}

// textPrompt is one of the prompts of a request.
type textPrompt struct {
	ids   []int32
	text  string // as echoed
	added int    // leading ids that the client did not send: BOS
}

// parseCompletion reads the body of /v1/completions.
func (s *server) parseCompletion(f *fields) (*completionRequest, *Error) {
	r := &completionRequest{generation: s.parseGeneration(f)}
	if f.str("suffix", "") != "" {
		f.fail(unsupported("suffix", "'suffix' is not supported."))
	}
	if best := f.integer("best_of", int64(r.n), 1, math.MaxInt32); best != int64(r.n) {
		f.fail(unsupported("best_of", "'best_of' is not supported unless it equals 'n'."))
	}
	r.echo = f.boolean("echo", false)
	limit := f.integer("max_tokens", defaultCompletionTokens, 0, math.MaxInt32)
	if r.promptOnly = limit == 0; r.promptOnly {
		r.request.MinTokens = 0
		limit = 1
	}
	r.limitTokens(f, limit)
	if f.has("logprobs") {
		r.request.Logprobs = true
		r.request.TopLogprobs = int(f.integer("logprobs", 0, 0, maxTopLogprobs))
		r.request.PromptLogprobs = r.echo
	}
	r.prompts = s.prompts(f)
	return r, f.err
}

// prompts reads "prompt": a text, token ids, or a list of either.
func (s *server) prompts(f *fields) []textPrompt {
	const name = "prompt"
	raw := f.get(name)
	if raw == nil {
		f.fail(invalid(name, "missing_required_parameter", "'prompt' is missing."))
		return nil
	}
	if kindOf(raw) == "string" {
		return s.addPrompt(f, nil, name, raw)
	}
	if kindOf(raw) != "array" {
		f.wrongType(name, "a string, an array of token ids, or an array of either", raw)
		return nil
	}
	for _, first := range elements(raw) {
		if kindOf(first) == "number" {
			return s.addPrompt(f, nil, name, raw)
		}
		break
	}
	if n := count(raw, s.MaxPrompts); n == 0 || n > s.MaxPrompts {
		f.fail(invalid(name, "invalid_value", "'prompt' must have from 1 to %d items.", s.MaxPrompts))
		return nil
	}
	var out []textPrompt
	for i, item := range elements(raw) {
		if f.cancelled() {
			return nil
		}
		out = s.addPrompt(f, out, fmt.Sprintf("%s[%d]", name, i), item)
	}
	return out
}

// addPrompt appends one prompt, a string or an array of token ids.
func (s *server) addPrompt(f *fields, out []textPrompt, param string, raw json.RawMessage) []textPrompt {
	var p textPrompt
	switch kindOf(raw) {
	case "string":
		p.text = text(raw)
		if bos, ok := s.Tokenizer.BOS(); ok && s.Tokenizer.AddBOS() {
			p.ids, p.added = []int32{bos}, 1
		}
		ids, err := s.encoder().EncodeContext(f.ctx, p.text, true)
		var failed *Error
		switch {
		case errors.As(err, &failed):
			f.fail(failed)
			return nil
		case err != nil:
			f.fail(errCancelled)
			return nil
		}
		p.ids = append(p.ids, ids...)
	case "array":
		p.ids = s.tokenIDs(f, param, raw)
		p.text = s.Tokenizer.Decode(p.ids)
	default:
		f.fail(invalid(param, "invalid_type", "'%s' must be a string or an array of token ids, not %s.", param, article(kindOf(raw))))
		return nil
	}
	if f.err == nil && len(p.ids) == 0 {
		f.fail(invalid(param, "invalid_value", "'%s' is empty; at least one token is required.", param))
	}
	return append(out, p)
}

// tokenIDs reads an array of token ids and checks that the vocabulary has them.
func (s *server) tokenIDs(f *fields, param string, raw json.RawMessage) []int32 {
	most := s.maxIDs()
	n := count(raw, most)
	if n > most {
		f.fail(&Error{Status: http.StatusBadRequest, Param: param, Code: "context_length_exceeded",
			Message: fmt.Sprintf("'%s' has more than %d token ids, which is as many as the context holds.", param, most)})
		return nil
	}
	ids := make([]int32, n)
	for i, item := range elements(raw) {
		if i%1024 == 0 && f.cancelled() {
			return nil
		}
		if kindOf(item) != "number" {
			f.fail(invalid(param, "invalid_type", "'%s[%d]' must be a token id, not %s.", param, i, article(kindOf(item))))
			return nil
		}
		id, ok := wholeNumber(item)
		if !ok || id < 0 || id >= int64(s.Tokenizer.Size()) {
			f.fail(invalid(param, "invalid_value", "'%s[%d]' must be a token id from 0 to %d, not %s.", param, i, s.Tokenizer.Size()-1, excerpt(item)))
			return nil
		}
		ids[i] = int32(id)
	}
	return ids
}

// maxIDs is the most token ids that a list in a request may have. The context
// holds one less together with an answer, which the engine says better.
func (s *server) maxIDs() int {
	if s.Model.ContextLength > 0 {
		return s.Model.ContextLength
	}
	return math.MaxInt32
}

// The JSON of a text completion; the chunks of a stream have the same form.
type (
	textCompletion struct {
		ID                string          `json:"id"`
		Object            string          `json:"object"`
		Created           int64           `json:"created"`
		Model             string          `json:"model"`
		SystemFingerprint string          `json:"system_fingerprint"`
		Choices           []textChoice    `json:"choices"`
		Usage             json.RawMessage `json:"usage,omitempty"`
	}
	textChoice struct {
		Text         string        `json:"text"`
		Index        int           `json:"index"`
		Logprobs     *textLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
)

func (s *server) completions(c *gin.Context) {
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
	r, failed := s.parseCompletion(f)
	if failed != nil {
		s.failRun(c, nil, failed)
		return
	}
	r.request.CacheScope, r.request.Tenant = s.scope(c), s.tenant(c)
	var requests []engine.Request
	var answers []*textAnswer
	for _, p := range r.prompts { // index = prompt * n + choice, as OpenAI numbers them
		for i := range r.n {
			requests = append(requests, r.choice(p.ids, i))
			answers = append(answers, s.newTextAnswer(r, p))
		}
	}
	ctx := c.Request.Context()
	run, err := s.submit(ctx, requests)
	if err != nil {
		s.fail(c, s.engineError(err))
		return
	}
	defer run.close()
	f.release()
	reply := textCompletion{
		ID: "cmpl-" + s.NewID(), Object: "text_completion", Created: s.Clock.Now().Unix(),
		Model: s.Model.ID, SystemFingerprint: s.Model.Fingerprint,
	}
	if r.stream {
		s.streamText(c, run, r, reply, answers)
		return
	}
	reply.Choices = make([]textChoice, len(answers))
	texts := make([]strings.Builder, len(answers))
	for {
		u, err := run.next(ctx, nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.failRun(c, nil, err)
			return
		}
		delta := answers[u.index].delta(u.event)
		texts[u.index].WriteString(delta.Text)
		choice := &reply.Choices[u.index]
		choice.Logprobs = choice.Logprobs.join(delta.Logprobs)
		if delta.FinishReason != nil {
			choice.FinishReason = delta.FinishReason
		}
	}
	for i := range texts {
		reply.Choices[i].Index = i
		reply.Choices[i].Text = texts[i].String()
	}
	reply.Usage = encode(r.usage(run))
	s.writeJSON(c, http.StatusOK, reply)
}

// usage adds up the usage of the request: each prompt once, and its n answers.
func (r *completionRequest) usage(run *choices) usage {
	var total usage
	for answers := range slices.Chunk(run.usage, r.n) {
		total.add(answers)
	}
	if r.promptOnly {
		total.CompletionTokens, total.TotalTokens = 0, total.PromptTokens
	}
	return total
}

// streamText sends the answers as they are generated.
func (s *server) streamText(c *gin.Context, run *choices, r *completionRequest, chunk textCompletion, answers []*textAnswer) {
	if r.usageChunk {
		chunk.Usage = json.RawMessage("null")
	}
	out := &sseWriter{c: c}
	ticks, stop := s.Clock.Ticker(s.KeepAlive)
	defer stop()
	for {
		u, err := run.next(c.Request.Context(), ticks)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && u.index < 0 {
			err = out.tick()
		} else if err == nil {
			delta := answers[u.index].delta(u.event)
			if delta.Text == "" && delta.Logprobs == nil && delta.FinishReason == nil {
				continue
			}
			delta.Index = u.index
			chunk.Choices = []textChoice{delta}
			err = out.send(chunk)
		}
		if err != nil {
			s.failRun(c, out, err)
			return
		}
	}
	if r.usageChunk {
		chunk.Choices = []textChoice{}
		chunk.Usage = encode(r.usage(run))
		if err := out.send(chunk); err != nil {
			s.failRun(c, out, err)
			return
		}
	}
	if err := out.done(); err != nil {
		s.failRun(c, out, err)
	}
}

// textAnswer turns the events of one answer into deltas of its choice.
type textAnswer struct {
	server   *server
	request  *completionRequest
	prompt   textPrompt
	echoed   bool
	logprobs textLogprober
}

func (s *server) newTextAnswer(r *completionRequest, p textPrompt) *textAnswer {
	a := &textAnswer{server: s, request: r, prompt: p, logprobs: textLogprober{server: s, top: r.request.TopLogprobs > 0}}
	if !r.echo {
		a.logprobs.offset = characters([]byte(p.text))
	}
	return a
}

// delta returns what an event adds to the choice. An echoed prompt is part of
// the first delta that is more than prefill progress.
func (a *textAnswer) delta(e engine.Event) textChoice {
	var delta textChoice
	request := &a.request.request
	if len(e.Prompt) > 0 && request.PromptLogprobs {
		delta.Logprobs = a.logprobs.addPrompt(e.Prompt[a.prompt.added:], a.prompt.added == 0)
	}
	if a.request.echo && !a.echoed && (e.Text != "" || len(e.Tokens) > 0 || len(e.Prompt) > 0 || e.Finish != engine.FinishNone) {
		a.echoed = true
		delta.Text = a.prompt.text
	}
	delta.FinishReason = orNull(string(e.Finish))
	if a.request.promptOnly {
		if e.Finish != engine.FinishNone {
			delta.FinishReason = orNull(string(engine.FinishLength))
		}
		return delta
	}
	delta.Text += e.Text
	if request.Logprobs {
		tokens := e.Tokens
		if n := len(tokens); n > 0 && a.server.endToken(e, n-1) {
			tokens = tokens[:n-1]
		}
		if len(tokens) > 0 {
			delta.Logprobs = delta.Logprobs.join(a.logprobs.add(tokens))
		}
	}
	return delta
}
