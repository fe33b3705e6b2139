package builtin

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
	"ringmaster/model/chat"
	"ringmaster/model/deepseek4"
	"ringmaster/model/tokenizer"
)

// call is a call with its arguments as JSON.
type call struct {
	Name      string
	Arguments json.RawMessage
}

// toolQuestion is a line of tools.jsonl: a question, the tools offered with it, and
// the calls it needs, or none and texts; the answer must have one of them.
type toolQuestion struct {
	Question string
	Tools    json.RawMessage // as OpenAI's API takes them
	Calls    []call
	Accept   []string
	Kind     string
}

// right reports whether the calls are those wanted, in any order, with equal
// arguments, and for a question without calls whether the text is accepted.
func (q *toolQuestion) right(t *testing.T, got []call, text string) bool {
	t.Helper()
	if len(q.Calls) == 0 {
		return len(got) == 0 && slices.ContainsFunc(q.Accept, func(a string) bool { return strings.Contains(text, a) })
	}
	return slices.Equal(canonical(t, got), canonical(t, q.Calls))
}

// canonical is calls as sorted lines with the keys of the arguments in order.
func canonical(t *testing.T, calls []call) []string {
	t.Helper()
	var out []string
	for _, c := range calls {
		var v any
		if err := json.Unmarshal(c.Arguments, &v); err != nil {
			v = string(c.Arguments)
		}
		line := testenv.JSON(t, []any{c.Name, v})
		out = append(out, string(line))
	}
	slices.Sort(out)
	return out
}

// score counts the right answers of each kind of question.
type score struct{ right, all map[string]int }

func (s *score) add(kind string, right bool) {
	if s.all == nil {
		s.right, s.all = map[string]int{}, map[string]int{}
	}
	s.all[kind]++
	if right {
		s.right[kind]++
	}
}

// total is how many questions were right, and how many there are, without those that need no call.
func (s *score) total() (right, all int) {
	for kind, n := range s.all {
		if kind != "none" {
			right, all = right+s.right[kind], all+n
		}
	}
	return right, all
}

func (s *score) log(t *testing.T, how string) {
	for _, kind := range slices.Sorted(maps.Keys(s.all)) {
		t.Logf("%s: %s: %d of %d", how, kind, s.right[kind], s.all[kind])
	}
	right, all := s.total()
	t.Logf("%s: %d of %d right (%.1f %%)", how, right, all, 100*float64(right)/float64(all))
}

// serve runs the API over the model and returns the URL of chat completions.
func serve(t *testing.T) (*engine.Engine, *tokenizer.Tokenizer, string) {
	t.Helper()
	f := open(t)
	c, err := deepseek4.ReadConfig(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	e, tok := start(t)
	s := httptest.NewServer(api.New(api.Config{
		Engine: api.FromEngine(e), Tokenizer: tok, Log: slog.New(slog.DiscardHandler),
		Model: api.Model{ID: "built-in", ContextLength: c.Context, Format: chat.Formats[0]},
	}))
	t.Cleanup(s.Close)
	return e, tok, s.URL + "/v1/chat/completions"
}

// message is a message of a request or an answer.
type message map[string]any

// complete asks for a greedy answer.
func complete(t *testing.T, url string, tools json.RawMessage, more map[string]any, messages ...message) (text string, calls []call) {
	t.Helper()
	request := map[string]any{"messages": messages, "temperature": 0, "max_tokens": 200, "reasoning_effort": "none"}
	if tools != nil {
		request["tools"] = tools
	}
	maps.Copy(request, more)
	body := testenv.JSON(t, request)
	r, err := http.Post(url, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", data)
	var answer struct {
		Choices []struct {
			Message struct {
				Content string
				Calls   []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &answer))
	require.Len(t, answer.Choices, 1)
	m := answer.Choices[0].Message
	for _, c := range m.Calls {
		calls = append(calls, call{c.Function.Name, json.RawMessage(c.Function.Arguments)})
	}
	return m.Content, calls
}

// TestToolCalls: the share of right calls for the held-out questions through the
// API. Its grammar lets the model call only what is offered. With -exhaustive the test
// also prints the share without the grammar.
func TestToolCalls(t *testing.T) {
	e, tok, url := serve(t)
	alsoFree := testenv.Rest(t, testenv.Exhaustive, "the same without the grammar")
	// Neighbours are of the same kind.
	every := 1
	if !testenv.Rest(t, testenv.Full, "seven of eight questions") {
		every = 8
	}
	var through, free score
	var questions []toolQuestion
	for i, q := range readLines[toolQuestion](t, "../../model/builtin/tools.jsonl") {
		if i%every == 0 {
			questions = append(questions, q)
		}
	}
	texts, called := make([]string, len(questions)), make([][]call, len(questions))
	together(len(questions), func(i int) {
		texts[i], called[i] = complete(t, url, questions[i].Tools, nil, message{"role": "user", "content": questions[i].Question})
	})
	for i, q := range questions {
		right := q.right(t, called[i], texts[i])
		if through.add(q.Kind, right); !right {
			t.Logf("%s: %q: %q %s, wanted %s %q", q.Kind, q.Question, texts[i], canonical(t, called[i]), canonical(t, q.Calls), q.Accept)
		}
		if alsoFree {
			text, calls := unconstrained(t, e, tok, &q)
			free.add(q.Kind, q.right(t, calls, text))
		}
	}
	through.log(t, "through the API")
	right, all := through.total()
	require.InDelta(t, 200/every, all, 1)
	least := leastCalls
	if every > 1 {
		least -= 0.05 // of an eighth of the questions more may be wrong by chance
	}
	require.GreaterOrEqual(t, float64(right), least*float64(all))
	if alsoFree {
		free.log(t, "without the grammar")
	}
}

// leastCalls is the least share of held-out questions with the right calls.
const leastCalls = 0.9

// unconstrained asks the engine without a grammar and reads the answer.
func unconstrained(t *testing.T, e *engine.Engine, tok *tokenizer.Tokenizer, q *toolQuestion) (text string, calls []call) {
	t.Helper()
	c := &chat.Conversation{Messages: []chat.Message{user(q.Question)}, Options: chat.Options{Functions: functions(t, q.Tools)}}
	ids, _, err := chat.Formats[0].Encode(t.Context(), tok, c)
	require.NoError(t, err)
	visible := map[int32]string{}
	for _, name := range chat.Formats[0].Markers() {
		id, ok := tok.ID(name)
		require.True(t, ok, name)
		visible[id] = name
	}
	p := chat.Formats[0].Parser(c)
	add := func(d chat.Delta) {
		text += d.Text
		for _, part := range d.Calls {
			if part.Begun {
				calls = append(calls, call{Name: part.Name})
			}
			calls[part.Index].Arguments = append(calls[part.Index].Arguments, part.Arguments...)
		}
	}
	answer(t, e, engine.Request{Prompt: ids, MaxTokens: 200, Visible: visible}, func(piece string) { add(p.Push(piece)) })
	add(p.Flush())
	return text, calls
}

// functions are tools as the API reads them.
func functions(t *testing.T, tools json.RawMessage) []chat.Function {
	t.Helper()
	list := testenv.FromJSON[[]struct{ Function json.RawMessage }](t, tools)
	var out []chat.Function
	for _, tool := range list {
		out = append(out, function(t, tool.Function))
	}
	return out
}

func function(t *testing.T, definition json.RawMessage) chat.Function {
	t.Helper()
	f := chat.Function{Raw: definition}
	require.NoError(t, json.Unmarshal(definition, &f))
	return f
}

// weatherTool is a tool as the README offers it.
const weatherTool = `[{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]`

// TestToolLoop: a call, its result, and an answer with what the result says; the
// next question needs no tool.
func TestToolLoop(t *testing.T) {
	_, _, url := serve(t)
	asked := message{"role": "user", "content": "What is the weather in Paris?"}
	text, calls := complete(t, url, json.RawMessage(weatherTool), nil, asked)
	require.Empty(t, text)
	require.Equal(t, []string{`["get_weather",{"city":"Paris"}]`}, canonical(t, calls))

	made := message{"role": "assistant", "tool_calls": []any{map[string]any{"id": "call_1", "type": "function",
		"function": map[string]any{"name": "get_weather", "arguments": `{"city": "Paris"}`}}}}
	result := message{"role": "tool", "tool_call_id": "call_1", "content": "rainy, 17 degrees"}
	text, calls = complete(t, url, json.RawMessage(weatherTool), nil, asked, made, result)
	require.Empty(t, calls)
	require.Contains(t, text, "rainy")
	require.Contains(t, text, "17")

	text, calls = complete(t, url, json.RawMessage(weatherTool), nil, asked, made, result,
		message{"role": "assistant", "content": text}, message{"role": "user", "content": "What is the capital of Italy?"})
	require.Empty(t, calls)
	require.Contains(t, text, "Rome")
}

// TestThinksBeforeACall: in thinking mode the reasoning comes first and the call after.
func TestThinksBeforeACall(t *testing.T) {
	_, _, url := serve(t)
	text, calls := complete(t, url, json.RawMessage(weatherTool), map[string]any{"reasoning_effort": "high"},
		message{"role": "user", "content": "What is the weather in Madrid?"})
	require.Empty(t, text)
	require.Equal(t, []string{`["get_weather",{"city":"Madrid"}]`}, canonical(t, calls))
}

// TestPromptsAsInTraining: the server renders conversations with tools as the
// training text has them.
func TestPromptsAsInTraining(t *testing.T) {
	python := testenv.NeedTool(t, "python3", "python3 is not installed")
	cmd := exec.CommandContext(t.Context(), python, "-B", "tools.py", "--dialogues", "200", "3")
	cmd.Dir = "../../scripts/train"
	out, err := cmd.Output()
	require.NoError(t, err)
	thinking, calls := 0, 0
	for line := range bytes.Lines(out) {
		var d struct {
			Messages []struct {
				Role      chat.Role
				Content   string
				Reasoning string `json:"reasoning_content"`
				CallID    string `json:"tool_call_id"`
				Calls     []struct {
					ID       string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Tools    []json.RawMessage
			Thinking bool
			Prompt   string
		}
		require.NoError(t, json.Unmarshal(line, &d))
		c := &chat.Conversation{Options: chat.Options{Thinking: d.Thinking, Ending: chat.Complete}}
		for _, m := range d.Messages {
			one := chat.Message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, CallID: m.CallID}
			for _, made := range m.Calls {
				one.Calls = append(one.Calls, chat.Call{ID: made.ID, Name: made.Function.Name, Arguments: made.Function.Arguments})
				calls++
			}
			c.Messages = append(c.Messages, one)
		}
		for _, tool := range d.Tools {
			c.Functions = append(c.Functions, function(t, tool))
		}
		if d.Thinking {
			thinking++
		}
		segments, err := chat.Formats[0].Segments(c)
		require.NoError(t, err)
		var prompt strings.Builder
		for _, s := range segments {
			prompt.WriteString(s.Text)
		}
		require.Equal(t, d.Prompt, prompt.String())
	}
	require.Greater(t, thinking, 20)
	require.Greater(t, calls, 200)
}
