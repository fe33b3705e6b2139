package ollama

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"ringmaster/api/dialect"
	"ringmaster/engine"
	"ringmaster/model/chat"
)

// maxTopLogprobs is the largest top_logprobs.
const maxTopLogprobs = 20

// unsupported lists the fields that must have a neutral value.
var unsupported = []dialect.UnsupportedField{
	{Name: "images", Neutral: []string{`[]`}, Remedy: "Only text is supported."},
	{Name: "suffix", Neutral: []string{`""`}, Remedy: "The model cannot fill in; write the request as a prompt."},
	{Name: "template", Neutral: []string{`""`}, Remedy: "The chat template is built in; with raw the prompt is taken as it is."},
	{Name: "context", Neutral: []string{`[]`}, Remedy: "Send the conversation as messages to /api/chat."},
	{Name: "_debug_render_only", Neutral: []string{`false`}, Remedy: "Prompts are not shown; /tokenize splits texts."},
}

// unsupportedOptions lists those of options.
var unsupportedOptions = []dialect.UnsupportedField{
	{Name: "repeat_penalty", Neutral: []string{`1`, `1.0`, `1.1`}, Remedy: "Use presence_penalty or frequency_penalty."},
	{Name: "typical_p", Neutral: []string{`1`, `1.0`}, Remedy: "Use top_p or min_p."},
}

// harmless lists fields that are ignored and change no answer: those about how Ollama
// loads a model, and what the prefix cache does anyway.
var harmless = []string{
	"keep_alive", "truncate", "shift", "name", "model", "options.num_ctx", "options.num_keep", "options.num_batch", "options.num_gpu", "options.main_gpu", "options.num_thread", "options.low_vram",
	"options.use_mmap", "options.use_mlock", "options.f16_kv", "options.vocab_only", "options.numa", "options.draft_num_predict",
}

// request holds the fields that the bodies for chat and for generate share.
type request struct {
	model    string // the name that the client used
	stream   bool
	engine   engine.Request // without Prompt
	thinking bool
	effort   string
	answer   *dialect.Form   // nil: any
	schema   json.RawMessage // that the model sees
}

// parse reads the fields that chat and generate share.
func parse(s *dialect.Service, f *dialect.Fields) *request {
	f.Reject(unsupported)
	r := &request{model: modelName(s, f), stream: f.Bool("stream", true)}
	r.think(s, f)
	r.format(f)
	q := &r.engine
	q.Logprobs = f.Bool("logprobs", false)
	if top := int(f.Integer("top_logprobs", 0, 0, maxTopLogprobs)); q.Logprobs { // without logprobs it has no effect
		q.TopLogprobs = top
	}
	o := f.Object("options")
	o.Reject(unsupportedOptions)
	q.MaxTokens = max(0, int(o.Integer("num_predict", 0, math.MinInt32, math.MaxInt32)))
	q.Stop = dialect.Stops(o, "stop")
	q.Sampling = dialect.Sampling(o)
	q.Sampling.PresencePenalty = o.Number("presence_penalty", 0, -2, 2)
	q.Sampling.FrequencyPenalty = o.Number("frequency_penalty", 0, -2, 2)
	if seed := o.Integer("seed", -1, math.MinInt64, math.MaxInt64); seed >= 0 {
		n := uint64(seed)
		q.Sampling.Seed = &n
	}
	f.Adopt(o)
	return r
}

// latest is the tag that Ollama's clients add to a name without one.
const latest = ":latest"

// modelName reads the name of the model; the answer repeats it. A name with the tag that
// clients add means the name without it.
func modelName(s *dialect.Service, f *dialect.Fields) string {
	for _, field := range []string{"model", "name"} { // the second is older
		name := f.String(field, "")
		if name == "" {
			continue
		}
		if plain, ok := strings.CutSuffix(name, latest); ok && !s.Serves(name) && s.Serves(plain) {
			return name
		}
		return s.CheckName(f, field, name)
	}
	return s.Model.ID
}

// think reads whether the model should reason, and how hard.
func (r *request) think(s *dialect.Service, f *dialect.Fields) {
	can := s.Model.Format.Thinks(true)
	r.thinking = can
	raw := f.Get("think")
	switch {
	case raw == nil:
		return
	case dialect.KindOf(raw) == "boolean":
		r.thinking = f.Bool("think", false)
	case dialect.KindOf(raw) == "string":
		r.effort = dialect.Text(raw)
		if !chat.IsEffort(r.effort) {
			f.Fail(dialect.Invalid("think", "invalid_value", "'think' must be true, false, low, medium, high or max, not '%s'.", dialect.Excerpt(json.RawMessage(r.effort))))
		}
		if r.thinking = r.effort != "none"; !r.thinking {
			r.effort = ""
		}
	default:
		f.WrongType("think", "true, false or a string", raw)
	}
	if r.thinking && !can {
		f.Fail(dialect.Invalid("think", "unsupported_parameter", "'think' asks for reasoning, which this model does not support."))
	}
}

// format reads "format": "json", or a schema.
func (r *request) format(f *dialect.Fields) {
	raw := f.Get("format")
	if raw == nil {
		return
	}
	switch dialect.KindOf(raw) {
	case "string":
		switch kind := dialect.Text(raw); kind {
		case "": // as if it were absent
		case "json":
			r.answer, r.schema = dialect.ObjectForm(), json.RawMessage(`{"type": "json_object"}`)
		default:
			f.Fail(dialect.Invalid("format", "invalid_value", "'format' must be json or a JSON schema, not '%s'.", dialect.Excerpt(json.RawMessage(kind))))
		}
	case "object":
		var failed *dialect.Error
		if r.answer, failed = dialect.SchemaForm(raw, "format"); failed != nil {
			f.Fail(failed)
		}
		r.schema = bytes.Clone(raw)
	default:
		f.WrongType("format", "json or a JSON schema", raw)
	}
}

// options returns the options of the conversation.
func (r *request) options(functions []chat.Function) chat.Options {
	return chat.Options{Thinking: r.thinking, Effort: r.effort, Functions: functions, Schema: r.schema}
}
