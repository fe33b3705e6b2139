package engine

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Bounds of a request; the first three are those of OpenAI's API.
const (
	maxTemperature = 2.0
	maxPenalty     = 2.0
	maxBias        = 100.0
	maxStops       = 64
	maxStopBytes   = 4096
)

// validate checks a request against the number of ids of the vocabulary and the
// number of positions of the context. Errors wrap ErrTooLong, or ErrInvalid with
// the field, its value and its range.
func (r *Request) validate(vocab, context int) error {
	bad := func(field string, value any, rule string) error {
		return fmt.Errorf("%w: %s is %v, it must be %s", ErrInvalid, field, value, rule)
	}
	between := func(field string, x, low, high float64) error {
		if math.IsNaN(x) || x < low || x > high {
			return bad(field, x, fmt.Sprintf("from %g to %g", low, high))
		}
		return nil
	}
	if r.Weight < 0 || r.Weight > MaxWeight {
		return bad("weight", r.Weight, fmt.Sprintf("from 0 to %d", MaxWeight))
	}
	if len(r.Prompt) == 0 {
		return bad("prompt", "empty", "at least one token")
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= vocab {
			return bad(fmt.Sprintf("prompt token %d", i), id, fmt.Sprintf("from 0 to %d", vocab-1))
		}
	}
	least := 1
	for i, n := range r.Branches {
		if n < least || n > len(r.Prompt) {
			return bad(fmt.Sprintf("branch %d", i), n, fmt.Sprintf("greater than the one before it and from 1 to the prompt's length, %d", len(r.Prompt)))
		}
		least = n + 1
	}
	s := &r.Sampling
	for _, err := range []error{
		between("temperature", s.Temperature, 0, maxTemperature),
		between("top_p", s.TopP, 0, 1),
		between("min_p", s.MinP, 0, 1),
		between("presence_penalty", s.PresencePenalty, -maxPenalty, maxPenalty),
		between("frequency_penalty", s.FrequencyPenalty, -maxPenalty, maxPenalty),
	} {
		if err != nil {
			return err
		}
	}
	if s.TopK < 0 {
		return bad("top_k", s.TopK, "0 or more")
	}
	for id, bias := range s.LogitBias {
		if id < 0 || int(id) >= vocab {
			return bad("logit_bias token", id, fmt.Sprintf("from 0 to %d", vocab-1))
		}
		if err := between(fmt.Sprintf("logit_bias of token %d", id), bias, -maxBias, maxBias); err != nil {
			return err
		}
	}
	for _, id := range r.Banned {
		if id < 0 || int(id) >= vocab {
			return bad("banned token", id, fmt.Sprintf("from 0 to %d", vocab-1))
		}
	}
	switch {
	case r.MaxTokens < 0:
		return bad("max_tokens", r.MaxTokens, "0 or more")
	case r.MinTokens < 0:
		return bad("min_tokens", r.MinTokens, "0 or more")
	case r.MaxTokens > 0 && r.MinTokens > r.MaxTokens:
		return bad("min_tokens", r.MinTokens, fmt.Sprintf("at most max_tokens, %d", r.MaxTokens))
	case r.TopLogprobs < 0 || r.TopLogprobs > MaxTopLogprobs:
		return bad("top_logprobs", r.TopLogprobs, fmt.Sprintf("from 0 to %d", MaxTopLogprobs))
	case r.TopLogprobs > 0 && !r.Logprobs && !r.PromptLogprobs:
		return bad("top_logprobs", r.TopLogprobs, "0 without logprobs")
	case len(r.Stop) > maxStops:
		return bad("stop", fmt.Sprintf("%d strings", len(r.Stop)), fmt.Sprintf("at most %d", maxStops))
	}
	for i, stop := range r.Stop {
		field := fmt.Sprintf("stop string %d", i)
		switch {
		case stop == "":
			return bad(field, "empty", "at least one character")
		case len(stop) > maxStopBytes:
			return bad(field, fmt.Sprintf("%d bytes long", len(stop)), fmt.Sprintf("at most %d", maxStopBytes))
		case !utf8.ValidString(stop):
			return bad(field, fmt.Sprintf("%q", stop), "UTF-8")
		}
	}
	if len(r.Prompt) >= context {
		return fmt.Errorf("%w: it has %d tokens, the context holds %d and at least one is for the answer", ErrTooLong, len(r.Prompt), context)
	}
	return nil
}
