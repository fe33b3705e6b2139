package openai

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"ringmaster/api/dialect"
	"ringmaster/engine"
)

const maxTopLogprobs = 20

// harmless lists fields, also of other servers, that are ignored and change no answer.
var harmless = []string{
	"store", "metadata", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "cache_prompt", "id_slot", "session_id", "request_id", "priority",
	"stream_options.include_obfuscation", "stream_options.continuous_usage_stats", "response_format.json_schema.name", "response_format.json_schema.description", "response_format.json_schema.strict",
	"timings_per_token", "return_progress", "return_tokens", "usage.include", "usage", "provider", "thinking.budget_tokens", "cache_control",
}

// generation holds the fields that chat and text completions share.
type generation struct {
	request engine.Request // without Prompt; Seed is that of choice 0
	model   string         // the name that the client used
	n       int
	stream  bool
	// usageChunk asks for the usage in an extra last chunk, and for
	// "usage": null in all others.
	usageChunk bool
	expected   string          // OpenAI's prediction; "": none
	answer     *dialect.Form   // of the answers; nil: any
	shown      json.RawMessage // the schema to show to the model
}

// parseGeneration reads the shared fields. The defaults are those recommended
// for the model: temperature 1, top_p 1, everything else off.
func parseGeneration(s *dialect.Service, f *dialect.Fields) generation {
	f.Reject(UnsupportedFields)
	g := generation{model: s.ModelName(f)}
	g.n = int(f.Integer("n", 1, 1, int64(s.MaxChoices)))
	g.stream = f.Bool("stream", false)
	if f.Has("stream_options") && !g.stream {
		f.Fail(dialect.Invalid("stream_options", "invalid_value", "'stream_options' is only allowed when 'stream' is true."))
	}
	so := f.Object("stream_options")
	g.usageChunk = so.Bool("include_usage", false)
	f.Adopt(so)

	r := &g.request
	r.MinTokens = int(f.Integer("min_tokens", 0, 0, math.MaxInt32))
	r.IgnoreEOS = f.Bool("ignore_eos", false)
	r.Stop = dialect.Stops(f, "stop")
	r.Sampling = dialect.Sampling(f)
	r.Sampling.PresencePenalty = f.Number("presence_penalty", 0, -2, 2)
	r.Sampling.FrequencyPenalty = f.Number("frequency_penalty", 0, -2, 2)
	r.Sampling.LogitBias = logitBias(s, f)
	r.NoDrafts = !f.Bool("drafts", true)
	g.expected = prediction(f)
	g.answer, g.shown = parseFormat(f)
	if g.answer != nil && r.IgnoreEOS {
		f.Fail(dialect.Invalid("ignore_eos", "invalid_value", "'ignore_eos' is not allowed with a form of the answer, because the form decides where the answer ends."))
	}
	if f.Has("seed") {
		seed := uint64(f.Integer("seed", 0, math.MinInt64, math.MaxInt64))
		r.Sampling.Seed = &seed
	}
	return g
}

// limitTokens sets the length limit of the answer and checks min_tokens against
// it; 0 means no limit.
func (g *generation) limitTokens(f *dialect.Fields, limit int64) {
	g.request.MaxTokens = int(limit)
	if limit > 0 && int64(g.request.MinTokens) > limit {
		f.Fail(dialect.Invalid("min_tokens", "invalid_value", "'min_tokens' is %d, more than the limit of %d tokens.", g.request.MinTokens, limit))
	}
}

// choice returns the request for one of the n choices. Each has its own seed, because
// otherwise all would be the same text.
func (g *generation) choice(prompt []int32, index int) engine.Request {
	r := g.request
	r.Prompt = prompt
	if r.Sampling.Seed != nil {
		seed := *r.Sampling.Seed + uint64(index)
		r.Sampling.Seed = &seed
	}
	return r
}

// logitBias reads an object with token ids as keys and numbers as values.
func logitBias(s *dialect.Service, f *dialect.Fields) map[int32]float64 {
	o := f.ObjectOf("logit_bias", s.Tokenizer.Size())
	defer f.Adopt(o)
	if len(o.Raw) == 0 {
		return nil
	}
	bias := make(map[int32]float64, len(o.Raw))
	for _, name := range slices.Sorted(maps.Keys(o.Raw)) { // so that the same error is always reported first
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 || id >= int64(s.Tokenizer.Size()) {
			o.Fail(dialect.Invalid("logit_bias", "invalid_value", "'logit_bias' has the key %s; keys must be token ids from 0 to %d.",
				dialect.Excerpt(json.RawMessage(strconv.Quote(name))), s.Tokenizer.Size()-1))
			return nil
		}
		bias[int32(id)] = o.Number(name, 0, -100, 100)
	}
	return bias
}
