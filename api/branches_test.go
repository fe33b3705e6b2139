package api

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/internal/testenv"
)

// In every dialect the engine gets a conversation with branches at the ends of its system
// prompt and turns, and a prompt that is no conversation without branches.
func TestBranches(t *testing.T) {
	turns := `{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"},{"role":"user","content":"Why?"}]`
	system := `"messages":[{"role":"system","content":"Be brief."},` + turns
	e := answering("x")
	h := New(testConfig(e))
	for _, tt := range []struct {
		path, body string
		answers    int
		branches   []string // what ends there, after the one before
	}{
		{"/v1/chat/completions", system + `,"n":3`, 3, []string{"\x00Be brief.", "\x02Hi", "\x03\x05Hello\x01", "\x02Why?"}},
		{"/v1/messages", `"max_tokens":9,"system":"Be brief.","messages":[` + turns, 1, []string{"\x00Be brief.", "\x02Hi", "\x03\x05Hello\x01", "\x02Why?"}},
		{"/v1/responses", `"instructions":"Be brief.","input":[` + turns, 1, []string{"\x00Be brief.", "\x02Hi", "\x03\x05Hello\x01", "\x02Why?"}},
		{"/api/chat", `"stream":false,"think":false,` + system, 1, []string{"\x00Be brief.", "\x02Hi", "\x03\x05Hello\x01", "\x02Why?"}},
		{"/api/generate", `"stream":false,"think":false,"system":"Be brief.","prompt":"Hi"`, 1, []string{"\x00Be brief.", "\x02Hi"}},
		{"/api/generate", `"stream":false,"raw":true,"prompt":"Hi"`, 1, nil},
		{"/v1/completions", `"prompt":["Hi","Why?"],"n":2`, 4, nil},
	} {
		from := len(e.requests)
		w := call(h, "POST", tt.path, `{"model":"tiny",`+tt.body+`}`)
		require.Equal(t, 200, w.Code, "%s: %s", tt.path, w.Body)
		require.Len(t, e.requests[from:], tt.answers, tt.path)
		for _, r := range e.requests[from:] {
			var parts []string
			at := 0
			for _, n := range r.Branches {
				part := ""
				for _, id := range r.Prompt[at:n] {
					part += string(rune(id % 256)) // control tokens begin at 256
				}
				parts, at = append(parts, part), n
			}
			require.Equal(t, tt.branches, parts, tt.path)
		}
	}
}

// Each choice of a request has the text of a single request with the seed of the choice, and
// the usage counts the prompt once.
func TestChoicesAreRequests(t *testing.T) {
	const n, seed = 4, 40
	post := func(path, body string) (texts []string, u usage) {
		m := enginetest.NewModel(int(apitest.Size), enginetest.Options{})
		e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{})
		require.NoError(t, err)
		w := call(New(testConfig(FromEngine(e))), "POST", path, `{"max_tokens":30,`+body+`}`)
		require.NoError(t, e.Close(context.Background()))
		require.Empty(t, m.Violations())
		require.Equal(t, 200, w.Code, w.Body)
		c := testenv.FromJSON[completion](t, w.Body.Bytes())
		require.NoError(t, json.Unmarshal(c.Usage, &u))
		for _, choice := range c.Choices {
			texts = append(texts, choice.Text+choice.Message.Content)
		}
		return texts, u
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Tell me a story."}]`,
		"/v1/completions":      `"prompt":"Once upon a time"`,
	} {
		texts, together := post(path, fmt.Sprintf(`%s,"n":%d,"seed":%d`, body, n, seed))
		require.Len(t, texts, n)
		var alone usage
		completions := 0
		for i, text := range texts {
			one, u := post(path, fmt.Sprintf(`%s,"seed":%d`, body, seed+i))
			require.Equal(t, []string{text}, one, "%s, choice %d", path, i)
			require.NotContains(t, texts[:i], text, "another choice has the same text")
			alone = u
			completions += u.CompletionTokens
		}
		require.Equal(t, alone.PromptTokens, together.PromptTokens)
		require.Equal(t, completions, together.CompletionTokens)
		require.Zero(t, together.PromptDetails.CachedTokens, "the prompt was computed for this request")
	}
}
