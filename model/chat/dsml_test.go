package chat

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is a file of testdata: its description, options, messages and prompt.
type example struct {
	format       string
	conversation Conversation
	prompt       string
}

// header is the line before a message: "[role]" or "[role reasoning]".
var header = regexp.MustCompile(`^\[([a-z_]+)( reasoning)?\]$`)

func readExample(t *testing.T, path string) example {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	text, prompt, ok := strings.Cut(string(data), "\nprompt:\n")
	require.True(t, ok, "%s has no prompt", path)
	e := example{format: "v4", prompt: strings.TrimSuffix(prompt, "\n")}

	var body *string // of the message that the lines belong to
	reasoning := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		h := header.FindStringSubmatch(line)
		switch {
		case h != nil && h[2] != "":
			reasoning = ""
			body = &reasoning
		case h != nil:
			e.conversation.Messages = append(e.conversation.Messages, Message{Role: Role(h[1]), Reasoning: strings.TrimSpace(reasoning)})
			reasoning = ""
			body = &e.conversation.Messages[len(e.conversation.Messages)-1].Content
		case body != nil:
			*body += line + "\n"
		case strings.HasPrefix(line, "options: "):
			e.readOptions(t, strings.Fields(line)[1:])
		}
	}
	for i := range e.conversation.Messages {
		e.conversation.Messages[i].Content = strings.TrimSpace(e.conversation.Messages[i].Content)
	}
	return e
}

func (e *example) readOptions(t *testing.T, words []string) {
	o := &e.conversation.Options
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "thinking":
			o.Thinking = true
		case "effort":
			o.Effort = value
		case "format":
			e.format = value
		case "ending":
			endings := map[string]Ending{"continue": Continue, "complete": Complete}
			require.Contains(t, endings, value)
			o.Ending = endings[value]
		default:
			require.Fail(t, "unknown option "+w)
		}
	}
}

// format finds a format.
func format(t testing.TB, name string) *Format {
	f, err := Named(name)
	require.NoError(t, err)
	return f
}

func spell(segments []Segment) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 25)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			e := readExample(t, path)
			segments, err := format(t, e.format).Segments(&e.conversation)
			require.NoError(t, err)
			require.Equal(t, e.prompt, spell(segments))
		})
	}
}

func TestErrors(t *testing.T) {
	hello := Message{Role: User, Content: "Hello"}
	for _, c := range []struct {
		name     string
		messages []Message
		options  Options
		kind     error
		field    string
	}{
		{"no messages", nil, Options{}, ErrInvalid, "messages"},
		{"function result", []Message{{Role: "function"}}, Options{}, ErrInvalid, "messages[0].role"},
		{"no name", []Message{hello}, Options{Functions: []Function{{}}}, ErrInvalid, "tools[0].function.name"},
		{"markup in a name", []Message{hello}, Options{Functions: []Function{{Name: "a\">"}}}, ErrInvalid, "tools[0].function.name"},
		{"a name twice", []Message{hello}, Options{Functions: []Function{{Name: "a"}, {Name: "a"}}}, ErrInvalid, "tools[1].function.name"},
		{"nothing to call", []Message{hello}, Options{Choice: Required}, ErrInvalid, "tool_choice"},
		{"too many arguments", []Message{hello, {Role: Assistant, Calls: []Call{{Name: "a", Arguments: "{" + strings.Repeat(`"a:":":",`, 129) + "}"}}}, hello}, Options{}, ErrInvalid, "messages[1].tool_calls[0]"},
		{"continues after calls", []Message{hello, {Role: Assistant, Calls: []Call{{Name: "a"}}}}, Options{Ending: Continue}, ErrInvalid, "messages[1].role"},
		{"unknown role", []Message{hello, {Role: "robot"}, hello}, Options{}, ErrInvalid, "messages[1].role"},
		{"no role", []Message{{Content: "Hello"}}, Options{}, ErrInvalid, "messages[0].role"},
		{"silent developer", []Message{{Role: Developer}}, Options{}, ErrInvalid, "messages[0].content"},
		{"answered already", []Message{hello, {Role: Assistant, Content: "Hi"}}, Options{}, ErrInvalid, "messages[1].role"},
		{"nothing to continue", []Message{hello}, Options{Ending: Continue}, ErrInvalid, "messages[0].role"},
		{"unknown effort", []Message{hello}, Options{Thinking: true, Effort: "some"}, ErrInvalid, "effort"},
		{"unknown effort in chat mode", []Message{hello}, Options{Effort: "most"}, ErrInvalid, "effort"},
		{"unknown ending", []Message{hello}, Options{Ending: -1}, ErrInvalid, "ending"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conversation := &Conversation{c.messages, c.options}
			_, err := format(t, "v4").Segments(conversation)
			require.ErrorIs(t, err, c.kind)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field)
			require.Contains(t, err.Error(), c.field)
			_, _, err = format(t, "v4").Encode(t.Context(), nil, conversation)
			require.ErrorIs(t, err, c.kind)
		})
	}
}

// randomConversation has any roles at any place, except that the last message fits the
// ending. No text spells a marker.
func randomConversation(r *rand.Rand, e Ending) []Message {
	words := []string{"", "a", " b", "12", "\n", "3\n\n", "漢字", "。", "  ", "<", "think", "<|User|>", "é", "😀"}
	text := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(words[r.IntN(len(words))])
		}
		return b.String()
	}
	roles := []Role{System, Developer, User, User, Assistant, Assistant, LatestReminder}
	messages := make([]Message, 1+r.IntN(6))
	for i := range messages {
		messages[i] = Message{Role: roles[r.IntN(len(roles))], Content: text(), Reasoning: text()}
		if messages[i].Role == Developer {
			messages[i].Content += "!"
		}
	}
	last := &messages[len(messages)-1]
	switch {
	case e == Answer && last.Role == Assistant:
		last.Role = User
	case e == Continue:
		last.Role = Assistant
	}
	return messages
}

// The format keeps its promises: a prompt begins with the one BOS, markers and texts
// alternate, an answer is opened before it is closed, and a prompt for an answer ends
// within exactly one open answer.
func TestFormOfEveryPrompt(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 5000 {
		o := Options{Thinking: r.IntN(2) == 0, Ending: Ending(r.IntN(3)), Effort: []string{"", "high", "max"}[r.IntN(3)]}
		f := format(t, []string{"v4", "v4-0731", "v4.1"}[r.IntN(3)])
		messages := randomConversation(r, o.Ending)
		before := append([]Message{}, messages...)
		segments, err := f.Segments(&Conversation{messages, o})
		require.NoError(t, err)
		require.Equal(t, before, messages, "the caller's messages are not changed")

		require.Equal(t, Segment{Text: markBOS, Marker: true}, segments[0])
		open, closed := false, 0
		for i, s := range segments {
			require.NotEmpty(t, s.Text)
			if !s.Marker {
				require.True(t, segments[i-1].Marker, "two texts follow each other")
				continue
			}
			require.False(t, i > 0 && s.Text == markBOS, "a second BOS")
			switch s.Text {
			case markAssistant:
				require.Less(t, i+1, len(segments))
				mode := segments[i+1]
				require.True(t, mode.Marker && (mode.Text == markThinkEnd || o.Thinking && mode.Text == markThink))
				open = true
			case markEOS:
				open = false
				closed++
			}
		}
		answers := 0
		for _, m := range messages {
			if m.Role == Assistant {
				answers++
			}
		}
		switch o.Ending {
		case Answer:
			require.True(t, open)
			require.Equal(t, answers, closed)
		case Continue:
			require.Equal(t, answers-1, closed)
		case Complete:
			require.Equal(t, answers, closed)
		}
	}
}

// The prompt for an answer is a prefix of the conversation with that answer, so that its
// KV cache serves the next turn.
func TestAnswerExtendsThePrompt(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		o := Options{Thinking: r.IntN(2) == 0}
		messages := append(randomConversation(r, Answer), Message{Role: User, Content: "Why?"})
		prompt := spelled(t, "v4", Conversation{messages, o})
		answer := Message{Role: Assistant, Content: "Because.", Reasoning: "Hm."}
		o.Ending = Complete
		whole := spelled(t, "v4", Conversation{append(messages, answer), o})
		want := "Because." + markEOS
		if o.Thinking {
			want = "Hm." + markThinkEnd + want
		}
		require.Equal(t, prompt+want, whole)
	}
}

// TestSegmentsAreLinear checks that the memory for a conversation grows with its size and
// not with its square, whoever speaks.
func TestSegmentsAreLinear(t *testing.T) {
	const text = "twenty-eight bytes of a text"
	for _, role := range []Role{User, System, Assistant, Developer, LatestReminder, Tool} {
		for _, thinking := range []bool{false, true} {
			allocated := func(n int) uint64 {
				messages := make([]Message, n)
				for i := range messages {
					messages[i] = Message{Role: role, Content: text, Reasoning: text}
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				messages = append([]Message{{Role: Assistant, Calls: []Call{{Name: "f"}}}}, messages...)
				_, err := format(t, "v4").Segments(&Conversation{messages, Options{Thinking: thinking, Ending: Complete}})
				runtime.ReadMemStats(&after)
				require.NoError(t, err)
				return after.TotalAlloc - before.TotalAlloc
			}
			small, large := allocated(1000), allocated(8000)
			require.Less(t, large, 16*small, "%s, thinking %v: 8 times the messages", role, thinking)
		}
	}
}
