//go:build full

package clients

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	ollama "github.com/ollama/ollama/api"
	"github.com/stretchr/testify/require"
)

// withKey adds the API key to the requests of a client that knows none.
type withKey struct{ key string }

func (t withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.key)
	return http.DefaultTransport.RoundTrip(r)
}

func ollamaClient(t *testing.T, base, key string) *ollama.Client {
	u, err := url.Parse(strings.TrimSuffix(base, "/v1"))
	require.NoError(t, err)
	return ollama.NewClient(u, &http.Client{Transport: withKey{key}})
}

// plainly is the value that asks for no reasoning.
var plainly = &ollama.ThinkValue{Value: false}

func askOllama(text string) *ollama.ChatRequest {
	return &ollama.ChatRequest{Model: modelID, Think: plainly, Messages: []ollama.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: text}}}
}

// chatAll sends a request and joins the parts of the answer, as programs do.
func chatAll(t *testing.T, c *ollama.Client, r *ollama.ChatRequest) (all ollama.ChatResponse, parts int) {
	t.Helper()
	var whole ollama.Message
	err := c.Chat(t.Context(), r, func(part ollama.ChatResponse) error {
		require.False(t, all.Done, "a part follows the end")
		parts++
		whole.Role = part.Message.Role
		whole.Content += part.Message.Content
		whole.Thinking += part.Message.Thinking
		whole.ToolCalls = append(whole.ToolCalls, part.Message.ToolCalls...)
		all = part
		return nil
	})
	require.NoError(t, err)
	require.True(t, all.Done)
	all.Message = whole
	return all, parts
}

func TestOllamaGo(t *testing.T) {
	base, gone := start(t)
	c := ollamaClient(t, base, apiKey)
	ctx := t.Context()

	t.Run("server", func(t *testing.T) {
		require.NoError(t, c.Heartbeat(ctx))
		version, err := c.Version(ctx)
		require.NoError(t, err)
		require.NotEmpty(t, version)
		list, err := c.List(ctx)
		require.NoError(t, err)
		require.Len(t, list.Models, 1)
		require.Equal(t, modelID, list.Models[0].Name)
		running, err := c.ListRunning(ctx)
		require.NoError(t, err)
		require.Equal(t, 4096, running.Models[0].ContextLength)
		show, err := c.Show(ctx, &ollama.ShowRequest{Model: modelID})
		require.NoError(t, err)
		require.EqualValues(t, []string{"completion", "tools", "thinking"}, names(show.Capabilities))
		arch := show.ModelInfo["general.architecture"].(string)
		require.EqualValues(t, 4096, show.ModelInfo[arch+".context_length"])
	})
	for _, streams := range []bool{true, false} {
		r := func(text string) *ollama.ChatRequest { r := askOllama(text); r.Stream = &streams; return r }
		check := func(parts, most int) {
			t.Helper()
			if streams {
				require.Greater(t, parts, most)
			} else {
				require.Equal(t, 1, parts)
			}
		}
		t.Run("chat", func(t *testing.T) {
			all, parts := chatAll(t, c, r("Hi"))
			check(parts, 2)
			require.Equal(t, ollama.Message{Role: "assistant", Content: "Hello, wörld! 🎪"}, all.Message)
			require.Equal(t, "stop", all.DoneReason)
			require.Equal(t, 20, all.EvalCount)
			require.Greater(t, all.PromptEvalCount, 5)
			require.Positive(t, all.PromptEvalDuration)
			require.GreaterOrEqual(t, all.TotalDuration, all.PromptEvalDuration+all.EvalDuration)
		})
		t.Run("options", func(t *testing.T) {
			q := r("The capital of France?")
			q.Options = map[string]any{"num_predict": 3, "temperature": 0.0, "seed": 7, "num_ctx": 2048, "stop": []string{"never"}}
			q.Logprobs, q.TopLogprobs = true, 2
			all, _ := chatAll(t, c, q)
			require.Equal(t, "Par", all.Message.Content)
			require.Equal(t, "length", all.DoneReason)
			q.Options = map[string]any{"stop": []string{"is"}}
			all, _ = chatAll(t, c, q)
			require.Equal(t, "Par", all.Message.Content)
			require.Equal(t, "stop", all.DoneReason)
		})
		t.Run("thinking", func(t *testing.T) {
			for _, value := range []any{true, "high"} {
				q := r("The capital of France?")
				q.Think = &ollama.ThinkValue{Value: value}
				all, _ := chatAll(t, c, q)
				require.Equal(t, ollama.Message{Role: "assistant", Content: "Paris.", Thinking: "Let me think."}, all.Message)
			}
		})
		t.Run("format", func(t *testing.T) {
			q := r("Hi") // the model wants to say something else
			q.Format = json.RawMessage(`{"type":"object","properties":{"ok":{"const":true}},"required":["ok"],"additionalProperties":false}`)
			q.Options = map[string]any{"temperature": 0.0}
			all, _ := chatAll(t, c, q)
			require.JSONEq(t, `{"ok":true}`, all.Message.Content)
		})
		t.Run("tools", func(t *testing.T) {
			q := r("weather?")
			require.NoError(t, json.Unmarshal([]byte(`[{"type":"function","function":{"name":"weather","description":"The weather of a place","parameters":{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}},"required":["place","days"]}}}]`), &q.Tools))
			all, _ := chatAll(t, c, q)
			require.Equal(t, "I look.", all.Message.Content)
			require.Len(t, all.Message.ToolCalls, 1)
			call := all.Message.ToolCalls[0]
			require.NotEmpty(t, call.ID)
			require.Equal(t, "weather", call.Function.Name)
			require.Equal(t, map[string]any{"place": `Paris "<x>"`, "days": 2.0}, call.Function.Arguments.ToMap())
			q.Messages = append(q.Messages, all.Message, ollama.Message{Role: "tool", ToolName: "weather", Content: "22"})
			all, _ = chatAll(t, c, q)
			require.Equal(t, ollama.Message{Role: "assistant", Content: "22 degrees."}, all.Message)
		})
		t.Run("generate", func(t *testing.T) {
			var text string
			parts, last := 0, ollama.GenerateResponse{}
			require.NoError(t, c.Generate(ctx, &ollama.GenerateRequest{Model: modelID, Prompt: "The capital?", System: "Be brief.", Think: plainly, Stream: &streams}, func(r ollama.GenerateResponse) error {
				text += r.Response
				last, parts = r, parts+1
				return nil
			}))
			check(parts, 2)
			require.Equal(t, "Paris.", text)
			require.True(t, last.Done)
		})
	}
	t.Run("errors", func(t *testing.T) {
		fails := func(err error, status int, text string) {
			t.Helper()
			var e ollama.StatusError
			require.ErrorAs(t, err, &e)
			require.Equal(t, status, e.StatusCode)
			require.Contains(t, e.ErrorMessage, text)
		}
		nothing := func(ollama.ChatResponse) error { t.Error("an answer"); return nil }
		q := askOllama("Hi")
		q.Model = "llama3"
		fails(c.Chat(ctx, q, nothing), 404, "llama3")
		q = askOllama("Hi")
		q.Options = map[string]any{"temperature": 5.0}
		fails(c.Chat(ctx, q, nothing), 400, "options.temperature")
		fails(c.Chat(ctx, askOllama("busy"), nothing), 429, "queue")
		fails(c.Pull(ctx, &ollama.PullRequest{Model: "llama3"}, func(ollama.ProgressResponse) error { return nil }), 501, "ringmaster pull")
		_, err := c.Embed(ctx, &ollama.EmbedRequest{Model: modelID, Input: "x"})
		fails(err, 400, "embeddings")
		var e ollama.AuthorizationError
		require.ErrorAs(t, ollamaClient(t, base, "wrong").Chat(ctx, askOllama("Hi"), nothing), &e)
	})
	t.Run("error in the stream", func(t *testing.T) {
		parts := 0
		err := c.Chat(ctx, askOllama("break"), func(ollama.ChatResponse) error { parts++; return nil })
		require.ErrorContains(t, err, "The model has failed")
		require.Positive(t, parts)
	})
	t.Run("abort", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		err := c.Chat(ctx, askOllama("hold"), func(ollama.ChatResponse) error { cancel(); return nil })
		if err != nil { // the client may take the end of the body for that of the answer
			require.ErrorIs(t, err, context.Canceled)
		}
		<-gone
	})
}

// names are the texts of a list.
func names[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}
