package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/dialect"
	"ringmaster/model/chat"
)

// TestThinkingSwitches checks the different ways to request reasoning.
func TestThinkingSwitches(t *testing.T) {
	tests := []struct {
		body string
		want chat.Conversation
	}{
		{``, chat.Conversation{}},
		{`"thinking":{"type":"enabled"}`, chat.Conversation{Options: chat.Options{Thinking: true}}},
		{`"thinking":{"type":"disabled"},"reasoning_effort":"high"`, chat.Conversation{}},
		{`"enable_thinking":true`, chat.Conversation{Options: chat.Options{Thinking: true}}},
		{`"enable_thinking":false,"reasoning_effort":"max"`, chat.Conversation{}},
		{`"chat_template_kwargs":{"thinking":true}`, chat.Conversation{Options: chat.Options{Thinking: true}}},
		{`"chat_template_kwargs":{"enable_thinking":true,"thinking":false}`, chat.Conversation{Options: chat.Options{Thinking: true}}},
		{`"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"max"}`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "max"}}},
		{`"reasoning_effort":"none"`, chat.Conversation{}},
		{`"reasoning_effort":"minimal"`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "minimal"}}},
		{`"reasoning_effort":"low"`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "low"}}},
		{`"reasoning_effort":"medium"`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "medium"}}},
		{`"reasoning_effort":"high"`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "high"}}},
		{`"reasoning_effort":"xhigh"`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "xhigh"}}},
		{`"reasoning":{"effort":"max"}`, chat.Conversation{Options: chat.Options{Thinking: true, Effort: "max"}}},
	}
	for _, tt := range tests {
		f, failed := dialect.ParseObject([]byte(`{` + tt.body + `}`))
		require.Nil(t, failed)
		var c chat.Conversation
		parseThinking(f, &c)
		require.Equal(t, tt.want, c, tt.body)
		require.Nil(t, f.Err, tt.body)
	}
}
