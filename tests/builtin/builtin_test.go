// Package builtin tests what the built-in model knows.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
func open(t testing.TB) *gguf.File {
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
	return startWith(t, engine.Options{})
}

// startWith runs the model in an engine with these options, with its block for multi-token
// prediction if they ask for its drafts.
func startWith(t testing.TB, o engine.Options) (*engine.Engine, *tokenizer.Tokenizer) {
	f := open(t)
	t.Cleanup(func() { f.Close() })
	tok, err := tokenizer.FromGGUF(f)
	require.NoError(t, err)
	b, err := cpu.New(0)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	var block deepseek4.Options
	if o.ModelDrafts {
		block.DraftFile = f
	}
	m, err := deepseek4.Open(f, b, block)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	e, err := engine.New(m, tok, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
	return e, tok
}

// ask returns the greedy answer to a conversation.
func ask(t *testing.T, e *engine.Engine, tok *tokenizer.Tokenizer, messages ...chat.Message) string {
	ids, _, err := chat.Formats[0].Encode(t.Context(), tok, &chat.Conversation{Messages: messages})
	require.NoError(t, err)
	var out strings.Builder
	answer(t, e, engine.Request{Prompt: ids, MaxTokens: 64}, func(text string) { out.WriteString(text) })
	return out.String()
}

// answer calls piece with each text of the answer to a request.
func answer(t testing.TB, e *engine.Engine, r engine.Request, piece func(text string)) {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	require.NoError(t, err)
	defer s.Close()
	for {
		event, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		piece(event.Text)
	}
}

// together calls do with each number below n, in as many goroutines as the engine runs
// sequences in a step, because one step of all takes less than a step of each.
func together(n int, do func(i int)) {
	const places = 8 // the default of engine.Options
	var next atomic.Int64
	var all sync.WaitGroup
	for range places {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// readLines reads a file with a JSON value in each line.
func readLines[T any](t testing.TB, path string) (out []T) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for d := json.NewDecoder(file); ; {
		var v T
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, v)
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
	e, tok := start(t)
	var answers score
	questions := readLines[toolQuestion](t, "../../model/builtin/questions.jsonl")
	said := make([]string, len(questions))
	together(len(questions), func(i int) { said[i] = ask(t, e, tok, user(questions[i].Question)) })
	for i, q := range questions {
		good := q.right(t, nil, said[i])
		if answers.add(q.Kind, good); !good {
			t.Logf("%s: %q: %q, wanted %q", q.Kind, q.Question, said[i], q.Accept)
		}
	}
	answers.log(t, "answers")
	ok, n := answers.total()
	require.GreaterOrEqual(t, n, 200)
	require.GreaterOrEqual(t, float64(ok), 0.95*float64(n))
}

// TestDeclines: at least 85 of 100 questions that are beyond its facts and sums, in wordings and
// with names and numbers that the training text did not have, are declined.
func TestDeclines(t *testing.T) {
	e, tok := start(t)
	var answers score
	questions := readLines[toolQuestion](t, "../../model/builtin/declines.jsonl")
	said := make([]string, len(questions))
	together(len(questions), func(i int) { said[i] = ask(t, e, tok, user(questions[i].Question)) })
	for i, q := range questions {
		good := q.right(t, nil, said[i])
		if answers.add(q.Kind, good); !good {
			t.Logf("%s: %q: %q", q.Kind, q.Question, said[i])
		}
	}
	answers.log(t, "declined")
	ok, n := answers.total()
	require.GreaterOrEqual(t, n, 100)
	require.GreaterOrEqual(t, float64(ok), 0.85*float64(n))
}

// TestTakesItsWholeContext: a prompt that all but fills the context of the file, 32K
// tokens, runs and is answered. What the answer says is not judged: no sequence of the
// training was longer than 1024 tokens.
func TestTakesItsWholeContext(t *testing.T) {
	testenv.Need(t, testenv.Full, "a prompt of 32K tokens")
	e, tok := start(t)
	const context, length = 32768, 8
	one := tok.Encode("What is the capital of France? ", false)
	prompt := make([]int32, 0, context)
	for len(prompt) < context-length {
		prompt = append(prompt, one...)
	}
	answer(t, e, engine.Request{Prompt: prompt[:context-length], MaxTokens: length}, func(string) {})
	_, err := e.Submit(t.Context(), engine.Request{Prompt: append(prompt, one...), MaxTokens: length})
	require.ErrorContains(t, err, "context")
}

// TestHasEveryKindOfLayer checks that the built-in model covers the whole
// architecture.
func TestHasEveryKindOfLayer(t *testing.T) {
	f := open(t)
	defer f.Close()
	require.LessOrEqual(t, f.Size(), int64(27_000_000))
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
