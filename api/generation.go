package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"ringmaster/engine"
)

const (
	maxStops       = 16 // OpenAI takes 4
	maxStopBytes   = 4096
	maxTopLogprobs = 20
)

// generation holds the fields that chat and text completions share.
type generation struct {
	request engine.Request // without Prompt; Seed is that of choice 0
	model   string         // the name that the client used
	n       int
	stream  bool
	// usageChunk asks for the usage in an extra last chunk, and for
	// "usage": null in all others.
	usageChunk bool
}

// parseGeneration reads the shared fields. The defaults are those recommended
// for the model: temperature 1, top_p 1, everything else off.
func (s *server) parseGeneration(f *fields) generation {
	rejectUnsupported(f)
	g := generation{model: f.str("model", s.Model.ID)}
	s.checkModel(f, g.model)
	g.n = int(f.integer("n", 1, 1, int64(s.MaxChoices)))
	g.stream = f.boolean("stream", false)
	if f.has("stream_options") && !g.stream {
		f.fail(invalid("stream_options", "invalid_value", "'stream_options' is only allowed when 'stream' is true."))
	}
	so := f.object("stream_options")
	g.usageChunk = so.boolean("include_usage", false)
	f.adopt(so)

	r := &g.request
	r.MinTokens = int(f.integer("min_tokens", 0, 0, math.MaxInt32))
	r.IgnoreEOS = f.boolean("ignore_eos", false)
	r.Stop = stops(f)
	r.Sampling = engine.Sampling{
		Temperature:      f.number("temperature", 1, 0, 2),
		TopP:             f.number("top_p", 1, 0, 1),
		TopK:             max(0, int(f.integer("top_k", 0, -1, math.MaxInt32))), // -1 also means off
		MinP:             f.number("min_p", 0, 0, 1),
		PresencePenalty:  f.number("presence_penalty", 0, -2, 2),
		FrequencyPenalty: f.number("frequency_penalty", 0, -2, 2),
		LogitBias:        s.logitBias(f),
	}
	if r.Sampling.TopP == 0 {
		// For a client 0 means the smallest nucleus, one token; for the
		// engine it means off.
		r.Sampling.TopP = math.SmallestNonzeroFloat64
	}
	if f.has("seed") {
		seed := uint64(f.integer("seed", 0, math.MinInt64, math.MaxInt64))
		r.Sampling.Seed = &seed
	}
	return g
}

// limitTokens sets the length limit of the answer and checks min_tokens against
// it; 0 means no limit.
func (g *generation) limitTokens(f *fields, limit int64) {
	g.request.MaxTokens = int(limit)
	if limit > 0 && int64(g.request.MinTokens) > limit {
		f.fail(invalid("min_tokens", "invalid_value", "'min_tokens' is %d, more than the limit of %d tokens.", g.request.MinTokens, limit))
	}
}

// choice is the request for one of the n choices. Each has its own seed, or all
// would be the same text.
func (g *generation) choice(prompt []int32, index int) engine.Request {
	r := g.request
	r.Prompt = prompt
	if r.Sampling.Seed != nil {
		seed := *r.Sampling.Seed + uint64(index)
		r.Sampling.Seed = &seed
	}
	return r
}

func (s *server) checkModel(f *fields, name string) {
	if name == "" || s.serves(name) {
		return
	}
	f.fail(modelNotFound(name, s.Model.ID))
}

func (s *server) serves(name string) bool {
	return name == s.Model.ID || slices.Contains(s.Model.Aliases, name)
}

func modelNotFound(name, have string) *Error {
	return &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("The model '%s' does not exist; this server serves '%s'.", name, have)}
}

// stops reads "stop": a string or a list of strings.
func stops(f *fields) []string {
	raw := f.get("stop")
	if raw == nil {
		return nil
	}
	if kindOf(raw) == "string" {
		return checkStop(f, nil, text(raw))
	}
	if kindOf(raw) != "array" {
		f.wrongType("stop", "a string or an array of strings", raw)
		return nil
	}
	var out []string
	for i, item := range f.list("stop", maxStops) {
		if kindOf(item) != "string" {
			f.fail(invalid("stop", "invalid_type", "'stop[%d]' must be a string, not %s.", i, article(kindOf(item))))
			return nil
		}
		out = checkStop(f, out, text(item))
	}
	return out
}

func checkStop(f *fields, stops []string, stop string) []string {
	if stop == "" {
		f.fail(invalid("stop", "invalid_value", "'stop' must not be an empty string: it would match any text."))
		return nil
	}
	if len(stop) > maxStopBytes {
		f.fail(invalid("stop", "invalid_value", "'stop' contains a string of %d bytes; at most %d are allowed.", len(stop), maxStopBytes))
		return nil
	}
	return append(stops, stop)
}

// logitBias reads an object whose keys are token ids and whose values are
// numbers.
func (s *server) logitBias(f *fields) map[int32]float64 {
	o := f.objectOf("logit_bias", s.Tokenizer.Size())
	defer f.adopt(o)
	if len(o.raw) == 0 {
		return nil
	}
	names := make([]string, 0, len(o.raw))
	for name := range o.raw {
		names = append(names, name)
	}
	slices.Sort(names) // so that the same error is always reported first
	bias := make(map[int32]float64, len(names))
	for _, name := range names {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 || id >= int64(s.Tokenizer.Size()) {
			o.fail(invalid("logit_bias", "invalid_value", "'logit_bias' has the key %s; keys must be token ids from 0 to %d.",
				excerpt(json.RawMessage(strconv.Quote(name))), s.Tokenizer.Size()-1))
			return nil
		}
		bias[int32(id)] = o.number(name, 0, -100, 100)
	}
	return bias
}
