package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
)

// An answer with calls that a client sends back has the tokens in the next prompt
// that were sampled, however the model spaced its markup; one that was changed is
// written as the format has it.
func TestReplays(t *testing.T) {
	odd := "Hm.</think>Yes\n\n\n" + strings.ReplaceAll(callText, ">\n<", "> <") // as no template writes it
	e := answering(odd)
	ids := 0
	c := testConfig(e)
	c.NewID = func() string { ids++; return fmt.Sprint("id", ids) }
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
		requests := e.submitted()
		return apitest.Tokenizer{}.Decode(requests[len(requests)-1].Prompt)
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

// What is remembered is bounded: the least recently used is forgotten.
func TestReplaysAreBounded(t *testing.T) {
	e := &fakeEngine{script: func(i int, _ engine.Request) ([]act, error) {
		text := strings.Repeat("x", 1000) + callText
		return []act{{event: engine.Event{Text: text, Tokens: []engine.Token{{ID: 65, Bytes: []byte(text)}}, Finish: engine.FinishStop}}}, nil
	}}
	ids := 0
	c := testConfig(e)
	c.MaxReplays, c.NewID = 8000, func() string { ids++; return fmt.Sprint("id", ids) }
	h := New(c)
	for range 50 {
		require.Equal(t, 200, call(h, "POST", "/v1/chat/completions", `{`+user+tools+`}`).Code)
	}
	metrics := call(h, "GET", "/metrics", "").Body.String()
	require.Regexp(t, `ringmaster_budget_used\{budget="answers with calls \(bytes\)"\} [1-7]\d\d\d\n`, metrics)
}
