//go:build full

package clients

import (
	"context"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"
)

func goClient(url, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func ask(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: modelID, Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage(text)},
	}
}

func TestOpenAIGo(t *testing.T) {
	url, gone := start(t)
	c := goClient(url, apiKey)
	ctx := t.Context()

	t.Run("models", func(t *testing.T) {
		page, err := c.Models.List(ctx)
		require.NoError(t, err)
		require.Len(t, page.Data, 1)
		require.Equal(t, modelID, page.Data[0].ID)
		m, err := c.Models.Get(ctx, modelID)
		require.NoError(t, err)
		require.EqualValues(t, "model", m.Object)
	})
	t.Run("chat", func(t *testing.T) {
		p := ask("What is the capital of France?")
		p.N, p.Seed, p.Temperature = openai.Int(2), openai.Int(7), openai.Float(0)
		p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(3)
		r, err := c.Chat.Completions.New(ctx, p)
		require.NoError(t, err)
		require.Len(t, r.Choices, 2)
		for i, choice := range r.Choices {
			require.EqualValues(t, i, choice.Index)
			require.Equal(t, "Paris.", choice.Message.Content)
			require.Equal(t, "stop", choice.FinishReason)
			require.Len(t, choice.Logprobs.Content, 6)
			require.Equal(t, "P", choice.Logprobs.Content[0].Token)
			require.Equal(t, []int64{80}, choice.Logprobs.Content[0].Bytes)
			require.Len(t, choice.Logprobs.Content[0].TopLogprobs, 3)
		}
		require.EqualValues(t, 14, r.Usage.CompletionTokens) // "Paris." and the end, twice
		require.Equal(t, r.Usage.PromptTokens+r.Usage.CompletionTokens, r.Usage.TotalTokens)
	})
	t.Run("stream", func(t *testing.T) {
		p := ask("Hi")
		p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		s := c.Chat.Completions.NewStreaming(ctx, p)
		var all openai.ChatCompletionAccumulator
		for s.Next() {
			require.True(t, all.AddChunk(s.Current()), "the client takes the chunks for those of one stream")
		}
		require.NoError(t, s.Err())
		require.Equal(t, "Hello, wörld! 🎪", all.Choices[0].Message.Content)
		require.Equal(t, "stop", all.Choices[0].FinishReason)
		require.EqualValues(t, 20, all.Usage.CompletionTokens)
	})
	t.Run("reasoning", func(t *testing.T) {
		p := ask("What is the capital of France?")
		p.ReasoningEffort = shared.ReasoningEffortHigh
		r, err := c.Chat.Completions.New(ctx, p)
		require.NoError(t, err)
		require.Equal(t, "Paris.", r.Choices[0].Message.Content)
		require.Equal(t, `"Let me think."`, r.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw())
		require.EqualValues(t, len("Let me think.</think>"), r.Usage.CompletionTokensDetails.ReasoningTokens)
	})
	t.Run("completions", func(t *testing.T) {
		r, err := c.Completions.New(ctx, openai.CompletionNewParams{
			Model: modelID, Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"capital of France", "greet"}},
			Echo: openai.Bool(true), Logprobs: openai.Int(2), MaxTokens: openai.Int(3),
		})
		require.NoError(t, err)
		require.Len(t, r.Choices, 2)
		require.Equal(t, "capital of FrancePar", r.Choices[0].Text)
		require.EqualValues(t, "length", r.Choices[0].FinishReason)
		require.Len(t, r.Choices[0].Logprobs.Tokens, len(r.Choices[0].Text))
		require.Equal(t, "greetHel", r.Choices[1].Text)
	})
	t.Run("errors", func(t *testing.T) {
		fails := func(err error, status int, code, param string) {
			t.Helper()
			var e *openai.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, status, e.StatusCode)
			require.Equal(t, code, e.Code)
			require.Equal(t, param, e.Param)
			require.NotEmpty(t, e.Message)
		}
		p := ask("Hi")
		p.Temperature = openai.Float(5)
		_, err := c.Chat.Completions.New(ctx, p)
		fails(err, 400, "out_of_range", "temperature")
		p = ask("Hi")
		p.Model = "gpt-5"
		_, err = c.Chat.Completions.New(ctx, p)
		fails(err, 404, "model_not_found", "model")
		wrong := goClient(url, "sk-wrong")
		_, err = wrong.Chat.Completions.New(ctx, ask("Hi"))
		fails(err, 401, "invalid_api_key", "")
		_, err = c.Chat.Completions.New(ctx, ask("busy"))
		fails(err, 429, "server_busy", "")
	})
	t.Run("error in the stream", func(t *testing.T) {
		s := c.Chat.Completions.NewStreaming(ctx, ask("break"))
		require.True(t, s.Next())
		for s.Next() {
		}
		require.ErrorContains(t, s.Err(), "model_failed")
	})
	t.Run("abort", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		s := c.Chat.Completions.NewStreaming(ctx, ask("hold"))
		require.True(t, s.Next())
		cancel()
		for s.Next() {
		}
		require.ErrorIs(t, s.Err(), context.Canceled)
		<-gone
	})
}
