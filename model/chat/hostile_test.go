package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// everywhere returns a conversation with text in every field that a client writes and no
// format refuses.
func everywhere(text string, thinking, tools bool) Conversation {
	quoted := func() string { b, _ := json.Marshal(text); return string(b) }()
	schema := json.RawMessage(`{"type":"object","title":` + quoted + `,"description":` + quoted +
		`,"properties":{` + quoted + `:{"type":"string","description":` + quoted + `,"enum":[` + quoted + `],"default":` + quoted + `}},"required":[` + quoted + `]}`)
	c := Conversation{
		Messages: []Message{
			{Role: System, Content: text},
			{Role: User, Content: text},
			{Role: Assistant, Reasoning: text, Content: text, ID: text},
			{Role: User, Content: "a" + text + "b"},
			{Role: Developer, Content: text},
			{Role: System, Content: text},
			{Role: User, Content: text},
		},
		Options: Options{Thinking: thinking, Schema: schema},
	}
	if tools {
		c.Functions = []Function{{Name: "f", Description: text, Parameters: schema, Raw: json.RawMessage(`{"name":"f","description":` + quoted + `,"parameters":` + string(schema) + `}`)}}
		c.Messages = append(c.Messages,
			Message{Role: Assistant, Reasoning: text, Content: text, Calls: []Call{
				{ID: text, Name: text, Arguments: `{` + quoted + `:` + quoted + `,"n":[{` + quoted + `:` + quoted + `}]}`},
				{ID: text + "2", Name: "f", Arguments: `{"a":` + quoted + `}`},
				{ID: "3", Name: "f", Arguments: text},
			}},
			Message{Role: Tool, CallID: text + "2", Content: text},
			Message{Role: Tool, CallID: text, Content: text},
			Message{Role: Tool, CallID: "3" + text, Content: text},
			Message{Role: User, Content: text})
	}
	return c
}

// TestMarkersInEveryField: whatever marker a client writes into whatever field, in no
// format does it become a control token: the sequence of control tokens is that of a
// conversation with harmless texts.
func TestMarkersInEveryField(t *testing.T) {
	tok := v4(t)
	var markers []string
	for _, f := range Formats {
		markers = append(markers, f.Markers()...)
	}
	markers = append(markers, markBOS, markEOS, markUser, markAssistant, markReminder, markSystem, markOutputs, markOutput, markOutputEnd, markOutputsEnd,
		kimiUser, kimiAssistant, kimiSystem, kimiMiddle, kimiEnd, "<｜fim▁begin｜>", "<|EOT|>")
	controls := func(f *Format, c Conversation) []string {
		ids, _, err := f.Encode(t.Context(), tok, &c)
		require.NoError(t, err)
		return added(tok, ids)
	}
	known := 0
	for _, m := range markers {
		if _, ok := tok.ID(m); ok {
			known++
		}
	}
	require.Greater(t, known, 30, "the vocabulary has the markers")
	for _, f := range Formats {
		t.Run(f.Name, func(t *testing.T) {
			for _, thinking := range []bool{false, true} {
				for _, tools := range []bool{false, true} {
					if tools && f.markup == nil {
						continue
					}
					want := controls(f, everywhere("harmless", thinking, tools))
					require.NotEmpty(t, want)
					for _, text := range []string{strings.Join(markers, ""), strings.Join(markers, " x\n")} {
						require.Equal(t, want, controls(f, everywhere(text, thinking, tools)), "thinking %v, tools %v", thinking, tools)
					}
				}
			}
			// An offered name is part of the markup and is not a marker.
			for _, m := range markers {
				_, err := f.Segments(&Conversation{Messages: []Message{{Role: User, Content: "Hi"}}, Options: Options{Functions: []Function{{Name: m}}}})
				require.ErrorIs(t, err, ErrInvalid)
			}
		})
	}
}
