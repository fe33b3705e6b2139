package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf/gguftest"
	"ringmaster/model/chat"
	"ringmaster/model/synthetic"
	"ringmaster/model/tokenizer"
)

// Files of each family indicate their format, its markers are tokens of their
// vocabularies, and what ends a turn ends an answer.
func TestChatFormatOfFiles(t *testing.T) {
	for preset, want := range map[string]struct{ format, end string }{
		"tiny": {"v4", "<｜User｜>"}, "ds2-tiny": {"v3.1", "<｜end▁of▁sentence｜>"}, "ds2lite-tiny": {"plain", "<｜end▁of▁sentence｜>"}, "k2-tiny": {"kimi-k2", "<|im_end|>"},
		"v32-tiny": {"v3.2", "<｜end▁of▁sentence｜>"}, "glm-tiny": {"glm-4.7", "<|observation|>"}, "glm5-tiny": {"glm-4.7", "<|user|>"},
	} {
		c, err := synthetic.Preset(preset)
		require.NoError(t, err)
		c.VocabOnly = true
		w, err := c.Writer()
		require.NoError(t, err)
		f := gguftest.Open(t, "m.gguf", w)
		tok, err := tokenizer.FromGGUF(f)
		require.NoError(t, err)
		format, err := chat.OfFile("auto", f, tok)
		require.NoError(t, err)
		require.Equal(t, want.format, format.Name, preset)
		id, ok := tok.ID(want.end)
		require.True(t, ok && tok.IsEnd(id), preset)
		conversation := chat.Conversation{Messages: []chat.Message{{Role: chat.User, Content: "Hi"}}, Options: chat.Options{Thinking: true}}
		ids, _, err := format.Encode(t.Context(), tok, &conversation)
		require.NoError(t, err, preset)
		require.NotEmpty(t, ids)
		for _, name := range format.CallMarkers() {
			if id, ok := tok.ID(name); preset == "glm-tiny" || ok {
				require.True(t, ok && tok.Added(id), "%s: %s", preset, name)
			}
		}
	}
	_, err := chat.OfFile("glm", nil, nil)
	require.ErrorContains(t, err, "glm-5.2")
}
