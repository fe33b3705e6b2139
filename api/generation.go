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

// generation is what chat and text completions have in common.
type generation struct {
	request engine.Request // but for its Prompt; the seed is that of choice 0
	model   string         // as the client called it
	n       int
	stream  bool
	// usageChunk: a last chunk with the usage, and "usage": null before.
	usageChunk bool
}

// parseGeneration reads the common fields. Values not given are those of the
// model: temperature 1, top_p 1, everything else off.
func (s *server) parseGeneration(f *fields) generation {
	refuseUnsupported(f)
	g := generation{model: f.str("model", s.Model.ID)}
	s.checkModel(f, g.model)
	g.n = int(f.integer("n", 1, 1, int64(s.MaxChoices)))
	g.stream = f.boolean("stream", false)
	if f.has("stream_options") && !g.stream {
		f.fail(invalid("stream_options", "invalid_value", "'stream_options' is only for \"stream\": true."))
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
		TopK:             max(0, int(f.integer("top_k", 0, -1, math.MaxInt32))), // -1 is off too
		MinP:             f.number("min_p", 0, 0, 1),
		PresencePenalty:  f.number("presence_penalty", 0, -2, 2),
		FrequencyPenalty: f.number("frequency_penalty", 0, -2, 2),
		LogitBias:        s.logitBias(f),
	}
	if r.Sampling.TopP == 0 {
		// To a client 0 is the smallest nucleus, one token; to the engine
		// it is off.
		r.Sampling.TopP = math.SmallestNonzeroFloat64
	}
	if f.has("seed") {
		seed := uint64(f.integer("seed", 0, math.MinInt64, math.MaxInt64))
		r.Sampling.Seed = &seed
	}
	return g
}

// limitTokens sets the length of the answer and checks that min_tokens fits it.
func (g *generation) limitTokens(f *fields, most int64) {
	g.request.MaxTokens = int(most)
	if most > 0 && int64(g.request.MinTokens) > most {
		f.fail(invalid("min_tokens", "invalid_value", "'min_tokens' is %d but at most %d tokens may be made.", g.request.MinTokens, most))
	}
}

// choice is the request of one of the n choices: the same but for the seed, or
// all would say the same.
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
		Message: fmt.Sprintf("The model '%s' is not served here; this server has '%s'.", name, have)}
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
	list := f.list("stop")
	if len(list) > maxStops {
		f.fail(invalid("stop", "too_many_items", "'stop' has %d items; at most %d are allowed.", len(list), maxStops))
		return nil
	}
	for i, item := range list {
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
		f.fail(invalid("stop", "invalid_value", "'stop' must not be an empty string: every text holds it."))
		return nil
	}
	if len(stop) > maxStopBytes {
		f.fail(invalid("stop", "invalid_value", "'stop' has a string of %d bytes; at most %d are allowed.", len(stop), maxStopBytes))
		return nil
	}
	return append(stops, stop)
}

// logitBias reads an object of token ids, as strings, to numbers.
func (s *server) logitBias(f *fields) map[int32]float64 {
	o := f.object("logit_bias")
	defer f.adopt(o)
	if len(o.raw) == 0 {
		return nil
	}
	names := make([]string, 0, len(o.raw))
	for name := range o.raw {
		names = append(names, name)
	}
	slices.Sort(names) // the same mistake is told first each time
	bias := make(map[int32]float64, len(names))
	for _, name := range names {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 || id >= int64(s.Tokenizer.Size()) {
			o.fail(invalid("logit_bias", "invalid_value", "'logit_bias' has the key %s; keys are token ids from 0 to %d.",
				short(json.RawMessage(strconv.Quote(name))), s.Tokenizer.Size()-1))
			return nil
		}
		bias[int32(id)] = o.number(name, 0, -100, 100)
	}
	return bias
}
