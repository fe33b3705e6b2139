package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		var c chunk
		require.NoError(t, json.Unmarshal([]byte(data), &c))
		out = append(out, c)
	}
	return out
}
