package prompt

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// feed pushes the parts of an answer and gives the two texts.
func feed(thinking bool, parts ...string) (reasoning, content string) {
	s := NewSplitter(thinking)
	for _, p := range parts {
		r, c := s.Push(p)
		reasoning, content = reasoning+r, content+c
	}
	r, c := s.Flush()
	return reasoning + r, content + c
}

func TestSplitter(t *testing.T) {
	for _, c := range []struct {
		name               string
		thinking           bool
		parts              []string
		reasoning, content string
	}{
		{"chat", false, []string{"Hi", "!"}, "", "Hi!"},
		{"chat with the marker", false, []string{"a</think>b"}, "", "a</think>b"},
		{"thinking", true, []string{"Hm.", "</think>", "Hi!"}, "Hm.", "Hi!"},
		{"cut marker", true, []string{"Hm.<", "/thi", "nk", ">Hi!"}, "Hm.", "Hi!"},
		{"nearly the marker", true, []string{"a</thi", "s></think>b"}, "a</this>", "b"},
		{"begun twice", true, []string{"a</th", "</think>b"}, "a</th", "b"},
		{"second marker", true, []string{"a</think>b</think>c"}, "a", "b</think>c"},
		{"no reasoning", true, []string{"</think>Hi"}, "", "Hi"},
		{"no end", true, []string{"Hm. I", " wonder"}, "Hm. I wonder", ""},
		{"ends in a beginning", true, []string{"a</thin"}, "a</thin", ""},
		{"nothing", true, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reasoning, content := feed(c.thinking, c.parts...)
			require.Equal(t, c.reasoning, reasoning)
			require.Equal(t, c.content, content)
		})
	}
}

// What is certain is given at once: only what may begin the marker waits.
func TestSplitterHoldsBackNoMoreThanItMust(t *testing.T) {
	s := NewSplitter(true)
	require.True(t, s.reasoning)
	for _, step := range []struct{ push, reasoning, content string }{
		{"ab<", "ab", ""},
		{"c", "<c", ""},
		{"</think", "", ""},
		{"</think", "</think", ""},
		{">x<", "", "x<"},
		{"/think>", "", "/think>"},
	} {
		r, c := s.Push(step.push)
		require.Equal(t, []string{step.reasoning, step.content}, []string{r, c}, "after %q", step.push)
	}
	require.False(t, s.reasoning)
}

// However an answer is cut, the two texts are the same.
func TestSplitterAnyCut(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	pieces := []string{"<", "/", "think", ">", "</think>", "</thi", "a", "漢", "\n"}
	for range 20000 {
		var text string
		for range r.IntN(10) {
			text += pieces[r.IntN(len(pieces))]
		}
		var parts []string
		for rest := text; rest != ""; {
			n := 1 + r.IntN(len(rest))
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		before, after, found := strings.Cut(text, markThinkEnd)
		reasoning, content := feed(true, parts...)
		require.Equal(t, []string{before, after}, []string{reasoning, content}, "%q (marker: %v)", parts, found)
		reasoning, content = feed(false, parts...)
		require.Equal(t, []string{"", text}, []string{reasoning, content})
	}
}

// A thinking answer that was split and written into the history comes back.
func TestSplitterIsTheInverseOfRender(t *testing.T) {
	question := Message{Role: User, Content: "Q"}
	for _, m := range []Message{
		{Role: Assistant, Reasoning: "Hm.\n", Content: "\nHi"},
		{Role: Assistant, Content: "Hi"},
		{Role: Assistant, Reasoning: "Hm."},
	} {
		o := Options{Thinking: true}
		prompt, err := render([]Message{question}, o)
		require.NoError(t, err)
		o.Ending = Complete
		whole, err := render([]Message{question, m}, o)
		require.NoError(t, err)
		written, ok := strings.CutSuffix(strings.TrimPrefix(whole, prompt), markEOS)
		require.True(t, ok)
		reasoning, content := feed(true, written)
		require.Equal(t, []string{m.Reasoning, m.Content}, []string{reasoning, content})
	}
}
