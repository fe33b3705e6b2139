package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/api/run"
	"ringmaster/engine"
)

// defaultCompletionTokens is OpenAI's default for this endpoint.
const defaultCompletionTokens = 16

// textPrompt is one of the prompts of a request.
type textPrompt struct {
	ids   []int32
	text  string // as echoed
	added int    // leading ids that the client did not send: BOS
}

// Completion parses a request to /v1/completions.
func Completion(s *dialect.Service, f *dialect.Fields) (*dialect.Call, *dialect.Error) {
	g := parseGeneration(s, f)
	if f.String("suffix", "") != "" {
		f.Fail(dialect.Unsupported("suffix", "'suffix' is not supported."))
	}
	if best := f.Integer("best_of", int64(g.n), 1, math.MaxInt32); best != int64(g.n) {
		f.Fail(dialect.Unsupported("best_of", "'best_of' is not supported unless it equals 'n'."))
	}
	echo := f.Bool("echo", false)
	limit := f.Integer("max_tokens", defaultCompletionTokens, 0, math.MaxInt32)
	promptOnly := limit == 0
	if promptOnly {
		g.request.MinTokens = 0
		limit = 1
	}
	g.limitTokens(f, limit)
	if f.Has("logprobs") {
		g.request.Logprobs = true
		g.request.TopLogprobs = int(f.Integer("logprobs", 0, 0, maxTopLogprobs))
		g.request.PromptLogprobs = echo
	}
	prompts := prompts(s, f)
	if f.Err != nil {
		return nil, f.Err
	}
	reply := &textReply{
		service: s, stream: g.stream, usageChunk: g.usageChunk, n: g.n, echo: echo, promptOnly: promptOnly,
		logprobs: g.request.Logprobs, promptLogprobs: g.request.PromptLogprobs,
		object: textCompletion{
			ID: "cmpl-" + s.NewID(), Object: "text_completion", Created: s.Now().Unix(),
			Model: g.model, SystemFingerprint: s.Model.Fingerprint,
		},
	}
	call := &dialect.Call{Stream: g.stream, Ignored: f.Unread(harmless)}
	for _, p := range prompts { // index = prompt * n + choice, as OpenAI numbers them
		for i := range g.n {
			call.Job.Requests = append(call.Job.Requests, g.choice(p.ids, i))
			reply.answers = append(reply.answers, newTextAnswer(reply, p, g.request.TopLogprobs > 0))
		}
	}
	if failed := s.Grammars.Constrain(f.Ctx, call.Job.Requests, g.answer); failed != nil {
		return nil, failed
	}
	if g.expected != "" {
		s.Relate(nil, g.expected, call.Job.Requests)
	}
	reply.predicted = g.expected != ""
	call.Reply = func(out *dialect.Writer) dialect.Reply { return reply.begin(out) }
	return call, nil
}

// prompts reads "prompt": a text, token ids, or a list of either.
func prompts(s *dialect.Service, f *dialect.Fields) []textPrompt {
	const name = "prompt"
	raw := f.Get(name)
	if raw == nil {
		f.Missing(name)
		return nil
	}
	if dialect.KindOf(raw) == "string" {
		return addPrompt(s, f, nil, name, raw)
	}
	if dialect.KindOf(raw) != "array" {
		f.WrongType(name, "a string, an array of token ids, or an array of either", raw)
		return nil
	}
	for _, first := range dialect.Elements(raw) {
		if dialect.KindOf(first) == "number" {
			return addPrompt(s, f, nil, name, raw)
		}
		break
	}
	if n := dialect.Count(raw, s.MaxPrompts); n == 0 || n > s.MaxPrompts {
		f.Fail(dialect.Invalid(name, "invalid_value", "'prompt' must have from 1 to %d items.", s.MaxPrompts))
		return nil
	}
	var out []textPrompt
	for i, item := range dialect.Elements(raw) {
		if f.Cancelled() {
			return nil
		}
		out = addPrompt(s, f, out, fmt.Sprintf("%s[%d]", name, i), item)
	}
	return out
}

// addPrompt appends one prompt, a string or an array of token ids.
func addPrompt(s *dialect.Service, f *dialect.Fields, out []textPrompt, param string, raw json.RawMessage) []textPrompt {
	var p textPrompt
	switch dialect.KindOf(raw) {
	case "string":
		p.text = dialect.Text(raw)
		if bos, ok := s.Tokenizer.BOS(); ok && s.Tokenizer.AddBOS() {
			p.ids, p.added = []int32{bos}, 1
		}
		ids, failed := s.Encode(f.Ctx, p.text, true)
		if failed != nil {
			f.Fail(failed)
			return nil
		}
		p.ids = append(p.ids, ids...)
	case "array":
		p.ids = s.TokenIDs(f, param, raw)
		p.text = s.Tokenizer.Decode(p.ids)
	default:
		f.Fail(dialect.Invalid(param, "invalid_type", "'%s' must be a string or an array of token ids, not %s.", param, dialect.Article(dialect.KindOf(raw))))
		return nil
	}
	if f.Err == nil && len(p.ids) == 0 {
		f.Fail(dialect.Invalid(param, "invalid_value", "'%s' is empty; at least one token is required.", param))
	}
	return append(out, p)
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

// textReply renders the choices of a text completion.
type textReply struct {
	predicted      bool // the client sent a prediction
	service        *dialect.Service
	out            *dialect.Writer
	stream         bool
	usageChunk     bool
	n              int // choices of each prompt
	echo           bool
	logprobs       bool
	promptLogprobs bool
	// promptOnly is set when max_tokens is 0: the answer is empty. The engine still
	// generates one token, which is discarded.
	promptOnly bool
	object     textCompletion
	answers    []*textAnswer
	progress   dialect.Progress
}

func (r *textReply) begin(out *dialect.Writer) dialect.Reply {
	r.out = out
	if r.stream && r.usageChunk {
		r.object.Usage = json.RawMessage("null")
	}
	return r
}

// Event implements dialect.Reply.
func (r *textReply) Event(e *run.Event) {
	r.progress.Follow(e)
	a := r.answers[e.Answer]
	delta := a.delta(e)
	if !r.stream {
		a.text.WriteString(delta.Text)
		a.whole.Logprobs = a.whole.Logprobs.join(delta.Logprobs)
		if delta.FinishReason != nil {
			a.whole.FinishReason = delta.FinishReason
		}
		return
	}
	if delta.Text == "" && delta.Logprobs == nil && delta.FinishReason == nil {
		return
	}
	delta.Index = e.Answer
	r.object.Choices = []textChoice{delta}
	r.out.Data(r.object)
}

// Tick implements dialect.Reply.
func (r *textReply) Tick(waits string) { tick(r.out, &r.progress, waits) }

// End implements dialect.Reply.
func (r *textReply) End(answers []run.Usage) {
	total := usage{}
	if r.predicted {
		total.predict()
	}
	for some := range slices.Chunk(answers, r.n) { // each prompt is followed by its n answers
		total.add(some)
	}
	if r.promptOnly {
		total.CompletionTokens, total.TotalTokens = 0, total.PromptTokens
	}
	if r.stream {
		if r.usageChunk {
			r.object.Choices = []textChoice{}
			r.object.Usage = dialect.Marshal(total)
			r.out.Data(r.object)
		}
		r.out.Done()
		return
	}
	for i, a := range r.answers {
		a.whole.Index, a.whole.Text = i, a.text.String()
		r.object.Choices = append(r.object.Choices, a.whole)
	}
	r.object.Usage = dialect.Marshal(total)
	r.out.JSON(http.StatusOK, r.object)
}

// textAnswer turns the events of one answer into deltas of its choice.
type textAnswer struct {
	reply    *textReply
	prompt   string // to echo
	added    int    // leading ids of the prompt that the client did not send
	echoed   bool
	logprobs textLogprober

	text  strings.Builder // of an answer that is not streamed
	whole textChoice      // without Text and Index
}

func newTextAnswer(r *textReply, p textPrompt, top bool) *textAnswer {
	a := &textAnswer{reply: r, added: p.added, logprobs: textLogprober{service: r.service, top: top}}
	if r.echo {
		a.prompt = p.text
	} else {
		a.logprobs.offset = characters([]byte(p.text))
	}
	return a
}

// delta returns what an event adds to the choice. The first delta that is more than
// prefill progress includes an echoed prompt.
func (a *textAnswer) delta(e *run.Event) textChoice {
	var delta textChoice
	r := a.reply
	if len(e.Prompt) > 0 && r.promptLogprobs {
		delta.Logprobs = a.logprobs.addPrompt(e.Prompt[a.added:], a.added == 0)
	}
	if r.echo && !a.echoed && !e.Empty() {
		a.echoed = true
		delta.Text, a.prompt = a.prompt, ""
	}
	delta.FinishReason = dialect.OrNull(string(e.Finish))
	if r.promptOnly {
		if e.Finish != engine.FinishNone {
			delta.FinishReason = dialect.OrNull(string(engine.FinishLength))
		}
		return delta
	}
	delta.Text += e.Text
	if r.logprobs && len(e.Tokens) > 0 {
		tokens := make([]engine.Token, len(e.Tokens))
		for i, t := range e.Tokens {
			tokens[i] = t.Token
		}
		delta.Logprobs = delta.Logprobs.join(a.logprobs.add(tokens))
	}
	return delta
}
