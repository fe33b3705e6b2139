//go:build full

package clients

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/openai"
)

// TestLangChainGo: chats, streams, a tool call with its result, errors, an abort.
func TestLangChainGo(t *testing.T) {
	url, gone := start(t)
	newClient := func(key string) *openai.LLM {
		c, err := openai.New(openai.WithBaseURL(url), openai.WithToken(key), openai.WithModel(modelID))
		require.NoError(t, err)
		return c
	}
	c, ctx := newClient(apiKey), t.Context()
	says := func(text string) []llms.MessageContent {
		return []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeSystem, "Be brief."), llms.TextParts(llms.ChatMessageTypeHuman, text)}
	}

	t.Run("chat", func(t *testing.T) {
		text, err := llms.GenerateFromSinglePrompt(ctx, c, "What is the capital of France?", llms.WithTemperature(0), llms.WithMaxTokens(50), llms.WithSeed(7))
		require.NoError(t, err)
		require.Equal(t, "Paris.", text)
		r, err := c.GenerateContent(ctx, says("Hi"))
		require.NoError(t, err)
		require.Len(t, r.Choices, 1)
		require.Equal(t, "Hello, wörld! 🎪", r.Choices[0].Content)
		require.Equal(t, "stop", r.Choices[0].StopReason)
		require.EqualValues(t, 20, r.Choices[0].GenerationInfo["CompletionTokens"])
	})
	t.Run("stream", func(t *testing.T) {
		var pieces []string
		r, err := c.GenerateContent(ctx, says("Hi"), llms.WithStreamingFunc(func(_ context.Context, piece []byte) error {
			pieces = append(pieces, string(piece))
			return nil
		}))
		require.NoError(t, err)
		require.Equal(t, "Hello, wörld! 🎪", strings.Join(pieces, ""))
		require.Equal(t, "Hello, wörld! 🎪", r.Choices[0].Content)
	})
	weather := llms.Tool{Type: "function", Function: &llms.FunctionDefinition{
		Name: "weather", Description: "The weather of a place.",
		// As text, since the model has the arguments in the order of the schema.
		Parameters: json.RawMessage(`{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}},"required":["place"]}`),
	}}
	for name, options := range map[string][]llms.CallOption{
		"tools": {llms.WithTools([]llms.Tool{weather})},
		"tools in a stream": {llms.WithTools([]llms.Tool{weather}), llms.WithToolChoice("auto"),
			llms.WithStreamingFunc(func(context.Context, []byte) error { return nil })},
	} {
		t.Run(name, func(t *testing.T) {
			messages := says("weather in Paris?")
			r, err := c.GenerateContent(ctx, messages, options...)
			require.NoError(t, err)
			require.Equal(t, "tool_calls", r.Choices[0].StopReason)
			require.Len(t, r.Choices[0].ToolCalls, 1)
			call := r.Choices[0].ToolCalls[0]
			require.Equal(t, "weather", call.FunctionCall.Name)
			require.JSONEq(t, `{"place":"Paris \"<x>\"","days":2}`, call.FunctionCall.Arguments)
			require.NotEmpty(t, call.ID)

			messages = append(messages,
				llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{llms.TextContent{Text: r.Choices[0].Content}, call}},
				llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{
					llms.ToolCallResponse{ToolCallID: call.ID, Name: "weather", Content: "22"}}})
			r, err = c.GenerateContent(ctx, messages, options...)
			require.NoError(t, err)
			require.Equal(t, "22 degrees.", r.Choices[0].Content)
			require.Equal(t, "stop", r.Choices[0].StopReason)
		})
	}
	t.Run("errors", func(t *testing.T) {
		_, err := newClient("sk-wrong").GenerateContent(ctx, says("Hi"))
		require.ErrorContains(t, err, "401")
		_, err = c.GenerateContent(ctx, says("Hi"), llms.WithModel("gpt-5"))
		require.ErrorContains(t, err, "404")
		_, err = c.GenerateContent(ctx, says("busy"))
		require.ErrorContains(t, err, "429")
	})
	t.Run("abort", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		// The client takes the end of the connection for that of the answer.
		_, _ = c.GenerateContent(ctx, says("hold"), llms.WithStreamingFunc(func(context.Context, []byte) error {
			cancel()
			return nil
		}))
		<-gone
	})
}
