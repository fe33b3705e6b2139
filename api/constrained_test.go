package api

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A real engine with a model that would write something else writes what the form of the
// answer demands, and ends.
func TestConstrainedAnswers(t *testing.T) {
	h := New(realConfig(t, "I think so.</think>The answer is 42."))
	const schema = `{"type":"object","properties":{"a":{"enum":["x","y"]},"n":{"type":"integer","minimum":10,"maximum":12}},"required":["a","n"],"additionalProperties":false}`
	ask := func(body string) (out completion) {
		t.Helper()
		w := call(h, "POST", "/v1/chat/completions", `{`+user+`,"temperature":0,`+body+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
		return out
	}
	for _, body := range []string{
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":` + schema + `}}`, `"guided_json":` + schema,
		`"structured_outputs":{"json":` + schema + `}`, `"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":` + schema + `}},"n":2`,
		`"enable_thinking":true,"guided_json":` + schema,
	} {
		for _, choice := range ask(body).Choices {
			var v struct {
				A string
				N int
			}
			require.NoError(t, json.Unmarshal([]byte(choice.Message.Content), &v), "%s: %+v", body, choice)
			require.Contains(t, "xy", v.A)
			require.True(t, v.N >= 10 && v.N <= 12, choice.Message.Content)
			require.Equal(t, "stop", *choice.FinishReason)
			if strings.Contains(body, "thinking") {
				require.Equal(t, "I think so.", *choice.Message.Reasoning, "the form begins after the reasoning")
			}
		}
	}
	require.Regexp(t, regexp.MustCompile("^a{3,5}b$"), ask(`"guided_regex":"a{3,5}b"`).Choices[0].Message.Content)
	for _, field := range []string{`"grammar":`, `"guided_grammar":`, `"grammar":"","structured_outputs":{"grammar":`} {
		body := field + `"root ::= \"a\"{3,5} b\nb ::= [bc]"`
		if strings.Contains(field, "{") {
			body += "}"
		}
		require.Regexp(t, regexp.MustCompile("^a{3,5}[bc]$"), ask(body).Choices[0].Message.Content)
	}
	for body, want := range map[string]string{
		`"grammar":"root ::= a"`:                             `"message":"'grammar' cannot be enforced: line 1, column 10: there is no rule \"a\".","type":"invalid_request_error","param":"grammar"`,
		`"structured_outputs":{"grammar":"start: X"}`:        `'structured_outputs.grammar' cannot be enforced: line 1, column 6: expected \"::=\"`,
		`"grammar":"root ::= root? \"a\""`:                   `in line 1`,
		`"grammar":5`:                                        `'grammar' must be a string`,
		`"grammar":"root ::= \"a\"","guided_choice":["yes"]`: `Only one of the fields that constrain an answer`,
	} {
		w := call(h, "POST", "/v1/chat/completions", `{`+user+`,`+body+`}`)
		require.Equal(t, 400, w.Code, w.Body)
		require.Contains(t, w.Body.String(), want)
	}
	require.Contains(t, []string{"yes", "no"}, ask(`"guided_choice":["yes","no"]`).Choices[0].Message.Content)
	object := ask(`"response_format":{"type":"json_object"},"max_tokens":200`).Choices[0]
	require.True(t, strings.HasPrefix(object.Message.Content, "{"))
	require.True(t, *object.FinishReason == "length" || json.Valid([]byte(object.Message.Content)), object.Message.Content)

	w := call(h, "POST", "/v1/completions", `{"prompt":"x","max_tokens":100,"temperature":0,"guided_choice":["blue"]}`)
	require.Contains(t, w.Body.String(), `"text":"blue"`)

	// A required call is made, and nothing else is said.
	w = call(h, "POST", "/v1/chat/completions", `{`+user+tools+`,"temperature":0,"tool_choice":"required","parallel_tool_calls":false}`)
	var got struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Content *string
				Calls   []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
	require.Equal(t, "tool_calls", got.Choices[0].FinishReason)
	require.Nil(t, got.Choices[0].Message.Content)
	require.Len(t, got.Choices[0].Message.Calls, 1)
	require.Equal(t, "weather", got.Choices[0].Message.Calls[0].Function.Name)
	require.True(t, json.Valid([]byte(got.Choices[0].Message.Calls[0].Function.Arguments)))

	// Log-probabilities are those of what was allowed.
	w = call(h, "POST", "/v1/chat/completions", `{`+user+`,"temperature":0,"guided_choice":["Q"],"logprobs":true,"top_logprobs":3}`)
	require.Contains(t, w.Body.String(), `"token":"Q","logprob":0,`)
}
