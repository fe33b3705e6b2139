package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
)

// checked is an engine that checks every request against what the handlers
// promise.
func checked(t *testing.T) *fakeEngine {
	return &fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		require.NotEmpty(t, r.Prompt)
		for _, id := range r.Prompt {
			require.True(t, id >= 0 && id < apitest.Size)
		}
		s := r.Sampling
		require.True(t, s.Temperature >= 0 && s.Temperature <= 2 && s.TopP > 0 && s.TopP <= 1 && s.MinP >= 0 && s.MinP <= 1 && s.TopK >= 0)
		require.True(t, s.PresencePenalty >= -2 && s.PresencePenalty <= 2 && s.FrequencyPenalty >= -2 && s.FrequencyPenalty <= 2)
		for id, v := range s.LogitBias {
			require.True(t, id >= 0 && id < apitest.Size && v >= -100 && v <= 100)
		}
		require.True(t, r.MaxTokens >= 0 && r.MinTokens >= 0 && (r.MaxTokens == 0 || r.MinTokens <= r.MaxTokens))
		require.True(t, r.TopLogprobs >= 0 && r.TopLogprobs <= 20)
		for _, stop := range r.Stop {
			require.NotEmpty(t, stop)
		}
		return answerActs(len(r.Prompt), "a", "</think>b"), nil
	}}
}

// valid checks what holds for every response, whatever its status.
func valid(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	switch media, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";"); {
	case w.Code != http.StatusOK:
		require.True(t, w.Code == 400 || w.Code == 404, "%d", w.Code)
		errorOf(t, w)
	case media == "text/event-stream":
		chunks(t, w.Body.String())
	default:
		require.True(t, json.Valid(w.Body.Bytes()), w.Body)
		require.Contains(t, w.Body.String(), `"usage":`)
	}
}

// FuzzChatRequest checks that any body gets an error object or a completion,
// without a panic, and that the engine sees only valid requests.
func FuzzChatRequest(f *testing.F) {
	for _, seed := range []string{
		`{` + user + `}`,
		`{` + user + `,"stream":true,"n":2,"logprobs":true,"top_logprobs":3,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"u"},{"role":"assistant","content":"a","prefix":true,"reasoning_content":"r"}],"thinking":{"type":"enabled"}}`,
		`{` + user + `,"logit_bias":{"5":1.5},"stop":["a"],"seed":-3,"temperature":0,"top_p":0,"top_k":-1,"min_p":1,"max_tokens":1,"min_tokens":1}`,
		`{` + user + `,"chat_template_kwargs":{"thinking":true},"reasoning":{"effort":"low"},"tools":[],"response_format":{"type":"text"}}`,
		`{"messages":[{"role":"\ud800","content":null}]}`,
		`[]`, `null`, `{`, `{}{}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		valid(t, call(New(testConfig(checked(t))), "POST", "/v1/chat/completions", string(body), "Content-Type", "application/json"))
	})
}

// FuzzCompletionRequest does the same for text completions.
func FuzzCompletionRequest(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":"a"}`,
		`{"prompt":["a",[1,2]],"echo":true,"logprobs":2,"stream":true,"n":2,"best_of":2}`,
		`{"prompt":[1,256],"max_tokens":0,"suffix":null,"echo":true}`,
		`{"prompt":[[]],"logprobs":21}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		valid(t, call(New(testConfig(checked(t))), "POST", "/v1/completions", string(body), "Content-Type", "application/json"))
	})
}

// FuzzTexts does the same for /tokenize and /detokenize, and checks that each reverses
// the other.
func FuzzTexts(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a<|b|>"}`, `{"content":"\ud83d\ude00","add_special":true,"parse_special":false}`, `{"prompt":null}`,
		`{"tokens":[72,105,1e2,-0]}`, `{"tokens":[9999999999999999999]}`, `{"tokens":[[]],"text":7}`, `{"text":"a","text":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h := New(testConfig(answering("ok")))
		var encoded struct{ Tokens []int32 }
		for _, path := range []string{"/tokenize", "/detokenize"} {
			w := call(h, "POST", path, string(body), "Content-Type", "application/json")
			if w.Code != http.StatusOK {
				require.Equal(t, http.StatusBadRequest, w.Code)
				errorOf(t, w)
				continue
			}
			require.True(t, json.Valid(w.Body.Bytes()), w.Body)
			if path == "/tokenize" {
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &encoded))
				back := testenv.JSON(t, encoded)
				if len(encoded.Tokens) <= 4096 { // as many as the context holds
					require.Equal(t, 200, call(h, "POST", "/detokenize", strings.ToLower(string(back)), "Content-Type", "application/json").Code)
				}
			}
		}
	})
}
