package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// chunk is a chunk of a chat stream as a client reads it.
type chunk struct {
	ID      string
	Object  string
	Created int64
	Model   string
	Choices []struct {
		Index int
		Delta struct {
			Role      string
			Content   string
			Reasoning string `json:"reasoning_content"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage *usage
}

// chunks reads a whole stream, which must end with [DONE].
func chunks(t *testing.T, body string) []chunk {
	t.Helper()
	var out []chunk
	body, ended := strings.CutSuffix(body, "data: [DONE]\n\n")
	require.True(t, ended, "no [DONE]")
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		if strings.HasPrefix(event, ":") {
			continue
		}
		data, ok := strings.CutPrefix(event, "data: ")
		require.True(t, ok, event)
		c := testenv.FromJSON[chunk](t, data)
		out = append(out, c)
	}
	return out
}

// usage is the usage of an answer as a client reads it.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// completion is a chat or text completion as a client reads it.
type completion struct {
	Choices []struct {
		Text    string
		Message struct {
			Content   string
			Reasoning *string `json:"reasoning_content"`
		}
		FinishReason *string `json:"finish_reason"`
		Logprobs     struct {
			Tokens        []string
			TokenLogprobs []*float64           `json:"token_logprobs"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			TextOffset    []int                `json:"text_offset"`
		}
	}
	Usage json.RawMessage
}

// errorBody is an error as a client reads it.
type errorBody struct {
	Message, Type string
	Param, Code   *string
}
