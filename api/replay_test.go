package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/api/run"
	"ringmaster/engine"
	"ringmaster/internal/testenv"
	"ringmaster/model/chat"
)

// When a client sends an answer with calls back, the next prompt has the tokens that were
// sampled, however the model spaced its markup; a changed answer is written as the format
// has it.
func TestReplays(t *testing.T) {
	odd := "Hm.</think>Yes\n\n\n" + strings.ReplaceAll(callText, ">\n<", "> <") // as no template writes it
	e := answering(odd)
	c := testConfig(e)
	c.NewID = numbered("id%d")
	h := New(c)
	w := call(h, "POST", "/v1/chat/completions", `{`+user+tools+`,"enable_thinking":true}`)
	var got struct {
		Choices []struct{ Message json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
	message := string(got.Choices[0].Message)
	prompt := func(message string) string {
		w := call(h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"},`+message+`,{"role":"tool","tool_call_id":"x","content":"1"}]`+tools+`,"enable_thinking":true}`)
		require.Equal(t, 200, w.Code, w.Body)
		return apitest.Tokenizer{}.Decode(e.last().Prompt)
	}
	sampled := strings.TrimPrefix(odd, "Hm.</think>")
	require.Contains(t, prompt(message), "Hm.</think>"+sampled+"<")
	require.Contains(t, prompt(strings.ReplaceAll(message, `\"Paris\"`, `\"Paris\" `)), sampled, "the same JSON, written otherwise")
	for _, changed := range []string{
		strings.ReplaceAll(message, "Paris", "London"), strings.ReplaceAll(message, "Yes", "No"), strings.ReplaceAll(message, "_id", "_forged"),
	} {
		require.NotEqual(t, message, changed)
		text := prompt(changed)
		require.NotContains(t, text, sampled)
		require.Contains(t, text, ">\n<｜DSML｜invoke")
	}
	metrics := call(h, "GET", "/metrics", "").Body.String()
	require.Regexp(t, `ringmaster_budget_used\{budget="answers with calls \(bytes\)"\} [1-9]`, metrics)
	require.Regexp(t, `ringmaster_budget_used\{budget="grammars of constraints \(bytes\)"\} [1-9]`, metrics)
}

// The memory of answers is bounded: it forgets the least recently used.
func TestReplaysAreBounded(t *testing.T) {
	e := &fakeEngine{script: func(i int, _ engine.Request) ([]act, error) {
		text := strings.Repeat("x", 1000) + callText
		return []act{{event: engine.Event{Text: text, Tokens: []engine.Token{{ID: 65, Bytes: []byte(text)}}, Finish: engine.FinishStop}}}, nil
	}}
	c := testConfig(e)
	c.Replays, c.NewID = run.NewReplays(8000), numbered("id%d")
	h := New(c)
	for range 50 {
		require.Equal(t, 200, call(h, "POST", "/v1/chat/completions", `{`+user+tools+`}`).Code)
	}
	metrics := call(h, "GET", "/metrics", "").Body.String()
	require.Regexp(t, `ringmaster_budget_used\{budget="answers with calls \(bytes\)"\} [1-7]\d\d\d\n`, metrics)
}

// Reasoning that a client leaves out comes back as it was sampled, by the id of a call
// or, for an answer without calls, by the signature of its thinking; reasoning that the
// client changed is the client's.
func TestReplaysOfReasoning(t *testing.T) {
	const odd = "Hm.\n </think>Yes"
	for _, tt := range []struct{ name, text string }{{"calls", odd + "\n\n\n" + strings.ReplaceAll(callText, ">\n<", "> <")}, {"text", odd}} {
		t.Run(tt.name, func(t *testing.T) {
			e := answering(tt.text)
			c := testConfig(e)
			c.NewID = numbered("id%d")
			h := New(c)
			const thinking = `"max_tokens":64,"thinking":{"type":"adaptive","display":"omitted"}` + anthropicTools
			w := call(h, "POST", "/v1/messages", `{`+user+`,`+thinking+`}`)
			require.Equal(t, 200, w.Code, w.Body)
			got := testenv.FromJSON[struct{ Content json.RawMessage }](t, w.Body.Bytes())
			content := string(got.Content)
			require.Contains(t, content, `"thinking":""`)
			prompt := func(content string) string {
				w := call(h, "POST", "/v1/messages", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":`+content+`},{"role":"user","content":"Continue"}],`+thinking+`}`)
				require.Equal(t, 200, w.Code, w.Body)
				return withControls(e.last().Prompt)
			}
			require.Contains(t, prompt(content), "<｜Assistant｜><think>"+tt.text+"<｜end▁of▁sentence｜>")
			changed := strings.Replace(content, `"thinking":""`, `"thinking":"No."`, 1)
			require.Contains(t, prompt(changed), "<｜Assistant｜><think>No.</think>Yes")
			forged := strings.NewReplacer("rm_", "rm_x", `"id`, `"idx`, "toolu_", "toolu_x").Replace(content)
			require.Contains(t, prompt(forged), "<｜Assistant｜><think></think>Yes")
		})
	}
}

// An answer of GLM comes back as it was sampled. Its prompt begins the reasoning and its
// turns have no end.
func TestReplaysOfGLM(t *testing.T) {
	const thought, rest = " Hm.\n</think>", "\nYes\n\n<tool_call>weather\n<arg_key>place</arg_key> <arg_value>Rome</arg_value>\n</tool_call>"
	for _, name := range []string{"glm-4.7", "glm-5.1", "glm-5.2"} {
		e := answering(thought, rest) // the tokens are bytes
		c := testConfig(e)
		c.Tokenizer = otherTokenizer{}
		c.Model.Format = func() *chat.Format { f, _ := chat.Named(name); return f }()
		h := New(c)
		w := call(h, "POST", "/v1/chat/completions", `{`+user+tools+`,"enable_thinking":true}`)
		var got struct {
			Choices []struct {
				Finish  string `json:"finish_reason"`
				Message struct {
					Content   string
					Reasoning string          `json:"reasoning_content"`
					Calls     json.RawMessage `json:"tool_calls"`
				}
			}
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
		m := got.Choices[0].Message
		require.Equal(t, []string{"Yes", " Hm.\n", "tool_calls"}, []string{strings.TrimSpace(m.Content), m.Reasoning, got.Choices[0].Finish})
		require.Contains(t, string(m.Calls), `"arguments":"{\"place\": \"Rome\"}"`)
		prompt := func(calls string) string {
			content := testenv.JSON(t, m.Content)
			w := call(h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":`+string(content)+`,"reasoning_content":" Hm.\n","tool_calls":`+calls+`},{"role":"tool","content":"1"}]`+tools+`,"enable_thinking":true}`)
			require.Equal(t, 200, w.Code, w.Body)
			return withControls(e.last().Prompt)
		}
		const mark = "<｜▁pad▁｜>"
		require.Contains(t, prompt(string(m.Calls)), mark+"<think>"+thought+rest+mark+"<tool_response>1</tool_response>"+mark+"<think>")
		changed := prompt(strings.ReplaceAll(string(m.Calls), "Rome", "Oslo"))
		require.NotContains(t, changed, rest)
		require.Contains(t, changed, "</think>Yes<tool_call>weather<arg_key>place</arg_key><arg_value>Oslo</arg_value></tool_call>"+mark)
	}
}

// otherTokenizer has one id for all control tokens of Kimi K2 and GLM.
type otherTokenizer struct{ apitest.Tokenizer }

func (t otherTokenizer) ID(name string) (int32, bool) {
	if strings.HasPrefix(name, "<|") || name == "[gMASK]" || name == "<sop>" {
		return apitest.Pad, true
	}
	return t.Tokenizer.ID(name)
}

// A model that writes the marker of its reasoning itself sees that marker once.
func TestReplaysOfAModelThatBeginsToThink(t *testing.T) {
	const thought, rest = "<think>Hm.</think>", "Yes<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"place\":  \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>"
	e := answering(thought, rest) // the tokens are bytes
	c := testConfig(e)
	c.Tokenizer = otherTokenizer{}
	c.Model.Format = func() *chat.Format { f, _ := chat.Named("kimi-k2-thinking"); return f }()
	h := New(c)
	w := call(h, "POST", "/v1/chat/completions", `{`+user+tools+`}`)
	var got struct {
		Choices []struct {
			Message struct {
				Content   string
				Reasoning string          `json:"reasoning_content"`
				Calls     json.RawMessage `json:"tool_calls"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
	require.Equal(t, 200, w.Code, w.Body)
	m := got.Choices[0].Message
	require.Equal(t, []string{"Yes", "Hm."}, []string{m.Content, m.Reasoning})
	for _, reasoning := range []string{`,"reasoning_content":"Hm."`, ``} {
		w = call(h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"`+reasoning+`,"tool_calls":`+string(m.Calls)+`},{"role":"tool","content":"1"}]`+tools+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		require.Contains(t, withControls(e.last().Prompt), "assistant<｜▁pad▁｜>"+thought+rest+"<｜▁pad▁｜>")
	}
}
