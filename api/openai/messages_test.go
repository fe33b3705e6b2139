package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
)

// TestThinkingSwitches checks the different ways to request reasoning.
func TestThinkingSwitches(t *testing.T) {
	tests := []struct {
		body string
		want dialect.Conversation
	}{
		{``, dialect.Conversation{}},
		{`"thinking":{"type":"enabled"}`, dialect.Conversation{Thinking: true}},
		{`"thinking":{"type":"disabled"},"reasoning_effort":"high"`, dialect.Conversation{}},
		{`"enable_thinking":true`, dialect.Conversation{Thinking: true}},
		{`"enable_thinking":false,"reasoning_effort":"max"`, dialect.Conversation{}},
		{`"chat_template_kwargs":{"thinking":true}`, dialect.Conversation{Thinking: true}},
		{`"chat_template_kwargs":{"enable_thinking":true,"thinking":false}`, dialect.Conversation{Thinking: true}},
		{`"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"max"}`, dialect.Conversation{Thinking: true, Effort: "max"}},
		{`"reasoning_effort":"none"`, dialect.Conversation{}},
		{`"reasoning_effort":"minimal"`, dialect.Conversation{Thinking: true, Effort: "low"}},
		{`"reasoning_effort":"low"`, dialect.Conversation{Thinking: true, Effort: "low"}},
		{`"reasoning_effort":"medium"`, dialect.Conversation{Thinking: true, Effort: "high"}},
		{`"reasoning_effort":"high"`, dialect.Conversation{Thinking: true, Effort: "high"}},
		{`"reasoning_effort":"xhigh"`, dialect.Conversation{Thinking: true, Effort: "max"}},
		{`"reasoning":{"effort":"max"}`, dialect.Conversation{Thinking: true, Effort: "max"}},
	}
	for _, tt := range tests {
		f, failed := dialect.ParseObject([]byte(`{` + tt.body + `}`))
		require.Nil(t, failed)
		var c dialect.Conversation
		parseThinking(f, &c)
		require.Equal(t, tt.want, c, tt.body)
		require.Nil(t, f.Err, tt.body)
	}
}
