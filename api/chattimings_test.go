package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
)

// TestChatTimings: a chat completion has llama.cpp's timings, as a whole and in the last
// chunk of a stream only; answers without a step of decode have no rate.
func TestChatTimings(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	times := engine.Times{Submitted: start, Started: at(100), Decoding: at(600), Ended: at(1000), PrefillSteps: 1, DecodeSteps: 3}
	for name, c := range map[string]struct {
		body  string
		times engine.Times
		want  string // "": none
	}{
		"whole":            {`}`, times, `{"cache_n":2,"prompt_n":5,"prompt_ms":500,"prompt_per_token_ms":100,"prompt_per_second":10,"predicted_n":4,"predicted_ms":400,"predicted_per_token_ms":100,"predicted_per_second":10}`},
		"stream":           {`,"stream":true}`, times, `{"cache_n":2,"prompt_n":5,"prompt_ms":500,"prompt_per_token_ms":100,"prompt_per_second":10,"predicted_n":4,"predicted_ms":400,"predicted_per_token_ms":100,"predicted_per_second":10}`},
		"usage":            {`,"stream":true,"stream_options":{"include_usage":true}}`, times, `{"cache_n":2,"prompt_n":5,"prompt_ms":500,"prompt_per_token_ms":100,"prompt_per_second":10,"predicted_n":4,"predicted_ms":400,"predicted_per_token_ms":100,"predicted_per_second":10}`},
		"two choices":      {`,"stream":true,"n":2}`, times, `{"cache_n":2,"prompt_n":5,"prompt_ms":500,"prompt_per_token_ms":100,"prompt_per_second":10,"predicted_n":8,"predicted_ms":400,"predicted_per_token_ms":50,"predicted_per_second":20}`},
		"no step":          {`}`, engine.Times{Started: at(0), Decoding: at(500), Ended: at(500), PrefillSteps: 1}, `{"cache_n":2,"prompt_n":5,"prompt_ms":500,"prompt_per_token_ms":100,"prompt_per_second":10,"predicted_n":4,"predicted_ms":0,"predicted_per_token_ms":0,"predicted_per_second":0}`},
		"not known":        {`}`, engine.Times{}, ""},
		"not known stream": {`,"stream":true}`, engine.Times{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEngine{times: c.times, script: func(int, engine.Request) ([]act, error) {
				acts := answerActs(7, "Hello", ".")
				last := &acts[len(acts)-1].event
				last.Usage = engine.Usage{Prompt: 7, Cached: 2, Completion: 4}
				return acts, nil
			}}
			w := call(New(testConfig(e)), "POST", "/v1/chat/completions", `{`+user+c.body)
			require.Equal(t, 200, w.Code, w.Body)
			var all []string
			for line := range strings.Lines(w.Body.String()) {
				line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
				if line == "" || line == "[DONE]" {
					continue
				}
				var chunk struct{ Timings json.RawMessage }
				require.NoError(t, json.Unmarshal([]byte(line), &chunk))
				all = append(all, string(chunk.Timings))
			}
			require.Equal(t, c.want, all[len(all)-1])
			for _, earlier := range all[:len(all)-1] {
				require.Empty(t, earlier)
			}
		})
	}
}
