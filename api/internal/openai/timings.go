package openai

import (
	"time"

	"ringmaster/api/run"
)

// timings are the times of a chat completion, with the fields of llama.cpp's server. They
// are measured where the tokens are made, so that neither the network nor a proxy that
// holds tokens back changes them.
type timings struct {
	CacheN              int     `json:"cache_n"`  // tokens of the prompt found in the prefix cache
	PromptN             int     `json:"prompt_n"` // tokens of the prompt that were run
	PromptMS            float64 `json:"prompt_ms"`
	PromptPerTokenMS    float64 `json:"prompt_per_token_ms"`
	PromptPerSecond     float64 `json:"prompt_per_second"`
	PredictedN          int     `json:"predicted_n"`  // tokens of all choices
	PredictedMS         float64 `json:"predicted_ms"` // since the prompt had run, which gives the first token
	PredictedPerTokenMS float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond  float64 `json:"predicted_per_second"`
}

// newTimings returns the times of the choices of one prompt, nil if they are not known.
func newTimings(answers []run.Usage) *timings {
	t := &timings{}
	var decoding, ended time.Time
	steps := 0
	for i, a := range answers {
		if a.Times.Decoding.IsZero() || a.Times.Ended.IsZero() {
			return nil
		}
		if i == 0 {
			t.CacheN, t.PromptN, decoding = a.Cached, a.Prompt-a.Cached, a.Times.Decoding
			t.PromptMS = milliseconds(a.Times.Decoding.Sub(a.Times.Started))
		}
		t.PredictedN += a.Completion
		steps += a.Times.DecodeSteps
		if a.Times.Decoding.Before(decoding) {
			decoding = a.Times.Decoding
		}
		if a.Times.Ended.After(ended) {
			ended = a.Times.Ended
		}
	}
	t.PromptPerTokenMS, t.PromptPerSecond = rates(t.PromptN, t.PromptMS)
	if steps > 0 { // otherwise the prompt's last step made all tokens, in no time of their own
		t.PredictedMS = milliseconds(ended.Sub(decoding))
		t.PredictedPerTokenMS, t.PredictedPerSecond = rates(t.PredictedN, t.PredictedMS)
	}
	return t
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rates returns the milliseconds of a token and the tokens of a second, 0 if they cannot
// be known.
func rates(tokens int, ms float64) (perToken, perSecond float64) {
	if tokens == 0 || ms <= 0 {
		return 0, 0
	}
	return ms / float64(tokens), 1000 * float64(tokens) / ms
}
