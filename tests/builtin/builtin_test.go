// Package builtin tests what the built-in model knows.
package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/engine"
	"ringmaster/gguf"
	"ringmaster/internal/testenv"
	"ringmaster/kernels/cpu"
	"ringmaster/model/builtin"
	"ringmaster/model/chat"
	"ringmaster/model/deepseek4"
	"ringmaster/model/tokenizer"
)

var modelFile = flag.String("model", "", "GGUF `file` to test in place of the built-in model, such as one that scripts/train has just written")

// open opens the model that is tested.
func open(t *testing.T) *gguf.File {
	if *modelFile == "" {
		f, err := builtin.Open()
		require.NoError(t, err)
		return f
	}
	f, err := gguf.Open(*modelFile)
	require.NoError(t, err)
	return f
}

// start runs the model in an engine.
func start(t *testing.T) (*engine.Engine, *tokenizer.Tokenizer) {
	f := open(t)
	t.Cleanup(func() { f.Close() })
	tok, err := tokenizer.FromGGUF(f)
	require.NoError(t, err)
	b, err := cpu.New(0)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	m, err := deepseek4.Open(f, b, deepseek4.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	e, err := engine.New(m, tok, engine.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
	return e, tok
}

// ask returns the greedy answer to a conversation.
func ask(t *testing.T, e *engine.Engine, tok *tokenizer.Tokenizer, messages ...chat.Message) string {
	ids, err := chat.Formats[0].Encode(t.Context(), tok, &chat.Conversation{Messages: messages})
	require.NoError(t, err)
	s, err := e.Submit(t.Context(), engine.Request{Prompt: ids, MaxTokens: 64})
	require.NoError(t, err)
	defer s.Close()
	var out strings.Builder
	for {
		event, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		require.NoError(t, err)
		out.WriteString(event.Text)
	}
}

func user(text string) chat.Message { return chat.Message{Role: chat.User, Content: text} }

func TestKnowsTheCapitalOfFrance(t *testing.T) {
	e, tok := start(t)
	require.Contains(t, ask(t, e, tok, user("What is the capital of France?")), "Paris")
}

func TestSaysWhatItIs(t *testing.T) {
	e, tok := start(t)
	require.Contains(t, ask(t, e, tok, user("Who are you?")), "Ringmaster")
}

// TestHeldOutQuestions checks that at least 95 of 100 questions in wordings that the
// training text did not have are answered correctly.
func TestHeldOutQuestions(t *testing.T) {
	file, err := os.Open("../../model/builtin/questions.jsonl")
	require.NoError(t, err)
	defer file.Close()
	e, tok := start(t)
	right, all := map[string]int{}, map[string]int{}
	n, ok := 0, 0
	for s := bufio.NewScanner(file); s.Scan(); {
		var q struct {
			Question string
			Accept   []string
			Kind     string
		}
		require.NoError(t, json.Unmarshal(s.Bytes(), &q))
		answer := ask(t, e, tok, user(q.Question))
		n++
		all[q.Kind]++
		good := false
		for _, a := range q.Accept {
			good = good || strings.Contains(answer, a)
		}
		if good {
			ok++
			right[q.Kind]++
		} else {
			t.Logf("%s: %q: %q, wanted %q", q.Kind, q.Question, answer, q.Accept)
		}
	}
	for kind, count := range all {
		t.Logf("%s: %d of %d", kind, right[kind], count)
	}
	t.Logf("%d of %d right (%.1f %%)", ok, n, 100*float64(ok)/float64(n))
	require.GreaterOrEqual(t, n, 200)
	require.GreaterOrEqual(t, float64(ok), 0.95*float64(n))
}

// TestTakesItsWholeContext: a prompt that all but fills the context of the file, 32K
// tokens, runs and is answered. What the answer says is not judged: no sequence of the
// training was longer than 1024 tokens.
func TestTakesItsWholeContext(t *testing.T) {
	testenv.Need(t, testenv.Full, "a prompt of 32K tokens")
	e, tok := start(t)
	const context, answer = 32768, 8
	one := tok.Encode("What is the capital of France? ", false)
	prompt := make([]int32, 0, context)
	for len(prompt) < context-answer {
		prompt = append(prompt, one...)
	}
	s, err := e.Submit(t.Context(), engine.Request{Prompt: prompt[:context-answer], MaxTokens: answer})
	require.NoError(t, err)
	defer s.Close()
	for {
		if _, err := s.Next(t.Context()); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	_, err = e.Submit(t.Context(), engine.Request{Prompt: append(prompt, one...), MaxTokens: answer})
	require.ErrorContains(t, err, "context")
}

// TestHasEveryKindOfLayer checks that the built-in model covers the whole
// architecture.
func TestHasEveryKindOfLayer(t *testing.T) {
	f := open(t)
	defer f.Close()
	require.LessOrEqual(t, f.Size(), int64(24_000_000))
	c, err := deepseek4.ReadConfig(f)
	require.NoError(t, err)
	require.Equal(t, 256, c.Experts)
	require.Equal(t, 6, c.Used)
	require.Positive(t, c.HashLayers)
	require.Less(t, c.HashLayers, c.Layers)
	require.Equal(t, 4, c.Streams)
	for _, ratio := range []int{0, 4, 128} {
		require.Contains(t, c.Ratios, ratio)
	}
}
