package api

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/api/keys"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/internal/testenv"
)

// realConfig is the configuration of a handler over a real engine, whose model
// always generates the given text.
func realConfig(t *testing.T, text string) Config {
	m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: func([]int32) string { return text }})
	e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close(context.Background()))
		require.Empty(t, m.Violations())
	})
	return testConfig(FromEngine(e))
}

// TestRealEngine checks stop strings, token limits, reasoning and usage through
// a real engine.
func TestRealEngine(t *testing.T) {
	h := New(realConfig(t, "I think so.</think>The answer is 42."))
	tests := []struct{ body, content, reasoning, finish string }{
		{``, "I think so.The answer is 42.", "", "stop"},
		{`,"enable_thinking":true`, "The answer is 42.", "I think so.", "stop"},
		{`,"enable_thinking":true,"max_tokens":4`, "", "I th", "length"},
		{`,"enable_thinking":true,"stop":["answer is"]`, "The ", "I think so.", "stop"},
		{`,"stop":["zzz","</think>"]`, "I think so.", "", "stop"},
		{`,"enable_thinking":true,"n":3`, "The answer is 42.", "I think so.", "stop"},
	}
	for _, tt := range tests {
		w := call(h, "POST", "/v1/chat/completions", `{`+user+tt.body+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		c := testenv.FromJSON[completion](t, w.Body.Bytes())
		for _, choice := range c.Choices {
			require.Equal(t, tt.content, choice.Message.Content, tt.body)
			require.Equal(t, tt.reasoning, value(choice.Message.Reasoning), tt.body)
			require.Equal(t, tt.finish, *choice.FinishReason, tt.body)
		}
		u := testenv.FromJSON[usage](t, c.Usage)
		require.Equal(t, 6, u.PromptTokens)
		if strings.Contains(tt.body, "max_tokens") {
			require.Equal(t, 4, u.CompletionTokens)
			require.Equal(t, 4, u.CompletionDetails.ReasoningTokens)
		}

		w = call(h, "POST", "/v1/chat/completions", `{`+user+tt.body+`,"stream":true}`)
		require.Equal(t, 200, w.Code, w.Body)
		content, reasoning := map[int]string{}, map[int]string{}
		for _, c := range chunks(t, w.Body.String()) {
			for _, choice := range c.Choices {
				content[choice.Index] += choice.Delta.Content
				reasoning[choice.Index] += choice.Delta.Reasoning
			}
		}
		for i := range content {
			require.Equal(t, tt.content, content[i], tt.body)
			require.Equal(t, tt.reasoning, reasoning[i], tt.body)
		}
	}
}

// TestPrediction: a prediction changes no answer, and usage says what became of it, in chats
// and text completions.
func TestPrediction(t *testing.T) {
	h := New(realConfig(t, "The answer is 42."))
	for path, body := range map[string]string{"/v1/chat/completions": user, "/v1/completions": `"prompt":"q","max_tokens":100`} {
		plain := testenv.FromJSON[completion](t, call(h, "POST", path, `{`+body+`}`).Body.Bytes())
		for _, content := range []string{`"The answer is 43."`, `[{"type":"text","text":"The"}]`} {
			w := call(h, "POST", path, `{`+body+`,"prediction":{"type":"content","content":`+content+`}}`)
			require.Equal(t, 200, w.Code, w.Body)
			c := testenv.FromJSON[completion](t, w.Body.Bytes())
			require.Equal(t, plain.Choices, c.Choices)
			require.Contains(t, string(c.Usage), `"accepted_prediction_tokens"`)
			require.Contains(t, string(c.Usage), `"rejected_prediction_tokens"`)
			require.NotContains(t, string(plain.Usage), "prediction")
		}
		w := call(h, "POST", path, `{`+body+`,"prediction":{"type":"other","content":"x"}}`)
		require.Equal(t, 400, w.Code)
		require.Contains(t, w.Body.String(), "prediction.type")
		require.Equal(t, 400, call(h, "POST", path, `{`+body+`,"prediction":{"type":"content"}}`).Code)
		require.Equal(t, 200, call(h, "POST", path, `{`+body+`,"drafts":false}`).Code)
	}
}

// TestRealEngineScores checks that echo with log-probabilities gives one for each
// prompt token but the first, and one for each generated token.
func TestRealEngineScores(t *testing.T) {
	h := New(realConfig(t, "xyz"))
	w := call(h, "POST", "/v1/completions", `{"prompt":[97,98,99],"echo":true,"logprobs":1,"max_tokens":2}`)
	require.Equal(t, 200, w.Code, w.Body)
	c := testenv.FromJSON[completion](t, w.Body.Bytes())
	l := c.Choices[0].Logprobs
	require.Equal(t, "abcxy", c.Choices[0].Text)
	require.Equal(t, []string{"a", "b", "c", "x", "y"}, l.Tokens)
	require.Equal(t, []int{0, 1, 2, 3, 4}, l.TextOffset)
	require.Len(t, l.TopLogprobs, 5)
	require.Nil(t, l.TokenLogprobs[0])
	for _, v := range l.TokenLogprobs[1:] {
		require.NotNil(t, v)
		require.LessOrEqual(t, *v, 0.0)
	}
	require.InDelta(t, 0, *l.TokenLogprobs[4], 1e-6, "the model gives its text probability 1")
}

// TestRealEngineTooLong checks that a prompt beyond the context length is a
// client error.
func TestRealEngineTooLong(t *testing.T) {
	h := New(realConfig(t, "x"))
	w := call(h, "POST", "/v1/completions", `{"prompt":"`+strings.Repeat("a", 5000)+`"}`)
	require.Equal(t, 400, w.Code)
	require.Equal(t, "context_length_exceeded", value(errorOf(t, w).Code))
}

// TestTooManyChoices checks that a request which can never fit is a 400 that says
// so, and one that fits into an idle server is answered.
func TestTooManyChoices(t *testing.T) {
	h := New(realConfig(t, "x")) // 8 run, 64 wait
	prompts := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") }
	w := call(h, "POST", "/v1/completions", `{"n":2,"max_tokens":1,"prompt":[`+prompts(64)+`]}`)
	require.Equal(t, 400, w.Code, w.Body)
	e := errorOf(t, w)
	require.Equal(t, "too_many_choices", value(e.Code))
	require.Contains(t, e.Message, "128 requests, but at most 72 can run and wait")
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Equal(t, 200, call(h, "POST", "/v1/completions", `{"n":2,"max_tokens":1,"prompt":[`+prompts(36)+`]}`).Code)
}

// TestCacheOfAKey checks that cached_tokens tells a key nothing of the prompts of
// another, unless the keys share the cache.
func TestCacheOfAKey(t *testing.T) {
	for _, share := range []bool{false, true} {
		c := realConfig(t, "x")
		c.Keys = twoKeys(t, share)
		h := New(c)
		cached := func(path, body, key string) int {
			w := call(h, "POST", path, body, "Authorization", "Bearer "+key)
			require.Equal(t, 200, w.Code, w.Body)
			r := testenv.FromJSON[struct{ Usage usage }](t, w.Body.Bytes())
			return r.Usage.PromptDetails.CachedTokens
		}
		for path, body := range map[string]string{
			"/v1/completions": `{"prompt":"secret plans","max_tokens":1}`, "/v1/chat/completions": `{` + user + `,"max_tokens":1}`,
		} {
			require.Zero(t, cached(path, body, "one"), path)
			require.Equal(t, share, cached(path, body, "two") > 0, path)
			require.Positive(t, cached(path, body, "two"), path)
		}
	}
}

// TestTenant checks that requests with different keys are different tenants of the
// engine, and that with one key or none there are no tenants.
func TestTenant(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		want func(key string) string
	}{
		{nil, func(string) string { return "" }},
		{[]string{"one"}, func(string) string { return "" }},
		{[]string{"one", "one"}, func(string) string { return "" }},
		{[]string{"one", "two"}, hashed},
	} {
		var got []string
		c := testConfig(&fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
			got = append(got, r.Tenant)
			return answerActs(3, "x"), nil
		}})
		c.APIKeys = tt.keys
		h := New(c)
		var want []string
		for _, key := range append(tt.keys, "one")[:max(1, len(tt.keys))] {
			for path, body := range map[string]string{"/v1/completions": `{"prompt":"a","n":2}`, "/v1/chat/completions": `{` + user + `,"n":2}`} {
				require.Equal(t, 200, call(h, "POST", path, body, "Authorization", "Bearer "+key).Code)
				want = append(want, tt.want(key), tt.want(key))
			}
		}
		require.Equal(t, want, got)
		require.NotContains(t, got, "one", "the engine never sees a key")
	}
	require.NotEqual(t, hashed("one"), hashed("two"))

	// The weight of a key comes with each request; sharing the prefix cache changes no tenant.
	var got []engine.Request
	c := testConfig(&fakeEngine{script: func(_ int, r engine.Request) ([]act, error) {
		got = append(got, r)
		return answerActs(3, "x"), nil
	}})
	c.Keys = twoKeys(t, true)
	h := New(c)
	for _, key := range []string{"one", "two"} {
		require.Equal(t, 200, call(h, "POST", "/v1/completions", `{"prompt":"a"}`, "Authorization", "Bearer "+key).Code)
	}
	require.Equal(t, []any{hashed("one"), 0, hashed("two"), 7}, []any{got[0].Tenant, got[0].Weight, got[1].Tenant, got[1].Weight})
	require.Equal(t, keys.MostWeight, engine.MaxWeight)
}

// hashed is the tenant of the requests with a key, if there are several keys.
func hashed(key string) string {
	h := keys.Hash(key)
	return string(h[:])
}

// twoKeys are the keys "one" and "two" in a file, the second of weight 7, which share the
// prefix cache or do not.
func twoKeys(t *testing.T, share bool) *keys.Ring {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	one, two := keys.Key{Name: "one", Hash: keys.Hash("one"), Shared: share}, keys.Key{Name: "two", Hash: keys.Hash("two"), Weight: 7, Shared: share}
	require.NoError(t, os.WriteFile(path, []byte(one.Line()+two.Line()), 0o600))
	ring, err := keys.Open(keys.Options{File: path})
	require.NoError(t, err)
	return ring
}
