//go:build unix

package cluster

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// called is a call, once or in several events.
var called = regexp.MustCompile(`"name":"(weather)+"`)

// requests of every dialect, with tools, schemas and other forms of answers.
func dialectRequests() map[string][]string {
	const (
		schema   = `{"type":"object","properties":{"city":{"enum":["Rome","Paris"]},"days":{"type":"integer","minimum":1,"maximum":9},"dry":{"type":"boolean"}},"required":["city","days","dry"],"additionalProperties":false}`
		question = `"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0`
		function = `{"type":"function","function":{"name":"weather","description":"The weather","parameters":` + schema + `}}`
		history  = `"messages":[{"role":"user","content":"Rome?"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\",\"days\":1,\"dry\":true}"}}]},{"role":"tool","tool_call_id":"a","content":"22"}],"temperature":0`
	)
	out := map[string][]string{
		"/v1/chat/completions": {
			`{` + question + `,"max_tokens":400,"tools":[` + function + `],"tool_choice":"required","parallel_tool_calls":false`,
			`{` + question + `,"max_tokens":40,"tools":[` + function + `],"reasoning_effort":"high","logprobs":true,"top_logprobs":2`,
			`{` + question + `,"max_tokens":200,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":` + schema + `}}`,
			`{` + question + `,"max_tokens":60,"guided_regex":"[A-Z][a-z]{3,12}(, [A-Z][a-z]{3,12}){2}\\."`,
			`{` + question + `,"max_tokens":60,"guided_choice":["Paris","Rome","Bonn"]`,
			`{` + history + `,"max_tokens":30,"tools":[` + function + `]`,
			`{"messages":[{"role":"user","content":"Hi"}],"max_tokens":30,"temperature":1,"seed":7`,
		},
		"/v1/messages": {
			`{` + question + `,"max_tokens":400,"tools":[{"name":"weather","input_schema":` + schema + `}],"tool_choice":{"type":"tool","name":"weather","disable_parallel_tool_use":true}`,
			`{` + question + `,"max_tokens":60,"thinking":{"type":"enabled","budget_tokens":1024}`,
		},
		"/v1/responses": {
			`{"input":"Hi","temperature":0,"max_output_tokens":400,"tools":[{"type":"function","name":"weather","parameters":` + schema + `}],"tool_choice":"required","parallel_tool_calls":false`,
			`{"input":"Hi","temperature":0,"max_output_tokens":200,"text":{"format":{"type":"json_schema","name":"n","schema":` + schema + `}}`,
		},
		"/api/chat": {
			`{"messages":[{"role":"user","content":"Hi"}],"think":false,"options":{"temperature":0,"num_predict":200},"format":` + schema,
			`{"messages":[{"role":"user","content":"Hi"}],"think":false,"options":{"temperature":0,"num_predict":30},"tools":[` + function + `]`,
		},
	}
	for path, list := range out {
		var all []string
		for _, body := range list {
			all = append(all, body+`,"stream":false}`, body+`,"stream":true}`)
		}
		out[path] = all
	}
	return out
}

// TestDialects: three ranks answer every dialect as one does, with tools, schemas,
// expressions, reasoning and seeds, whole and streamed; and as one that runs no drafts.
func TestDialects(t *testing.T) {
	testenv.Need(t, testenv.Full, "all dialects on three ranks")
	t.Parallel()
	plain, alone, together := exactly(t, 1, "--drafts", "off"), exactly(t, 1, "--drafts", "text"), exactly(t, 3, "--drafts", "text")
	post := func(c *harness.Cluster, path, body string) string {
		status, said, err := ask(testenv.Within(t, hangLimit), c, path, body, strings.HasSuffix(body, `"stream":true}`))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s %s\n%s", path, body, said)
		return said
	}
	calls, schemas := 0, 0
	for path, list := range dialectRequests() {
		for _, body := range list {
			one := post(alone, path, body)
			require.Equal(t, one, post(together, path, body), "%s %s", path, body)
			require.Equal(t, one, post(plain, path, body), "without drafts: %s %s", path, body)
			if called.MatchString(one) {
				calls++
			}
			if strings.Contains(body, `"response_format"`) && strings.Contains(body, `"stream":false`) {
				var v struct {
					Choices []struct{ Message struct{ Content string } }
				}
				require.NoError(t, json.Unmarshal([]byte(one), &v), one)
				require.Regexp(t, `^\s*\{\s*"city"\s*:\s*"(Rome|Paris)"\s*,\s*"days"\s*:\s*[1-9]\s*,\s*"dry"\s*:\s*(true|false)\s*\}\s*$`, v.Choices[0].Message.Content)
				schemas++
			}
		}
	}
	require.GreaterOrEqual(t, calls, 6, "the model has called the tool that it had to")
	require.Equal(t, 1, schemas)
	require.Empty(t, acceptedDrafts(t, plain))
	require.NotEmpty(t, acceptedDrafts(t, alone))
	require.NotEmpty(t, acceptedDrafts(t, together))
}

// acceptedDrafts returns the counts of accepted drafts that are not 0.
func acceptedDrafts(t *testing.T, c *harness.Cluster) []string {
	text, err := c.Client.Metrics(testenv.Within(t, hangLimit))
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^ringmaster_draft_accepted_tokens_total\{.*\} [1-9].*$`).FindAllString(text, -1)
}
