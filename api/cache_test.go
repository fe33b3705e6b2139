package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/enginetest"
	"ringmaster/internal/testenv"
)

// A conversation of an agent that waits for results stays in the prefix cache, however
// many short requests come in between, such as those of programs that make titles. The
// agent says which requests are its own; without that it also stays, because it is worth
// more than they are.
func TestSideRequestsKeepTheConversation(t *testing.T) {
	for _, hint := range []string{"", `,"metadata":{"user_id":"u"}`} {
		m := enginetest.NewModel(int(apitest.Size), enginetest.Options{Say: func(history []int32) string {
			if strings.Contains(apitest.Tokenizer{}.Decode(history), "weather") {
				return callText
			}
			return "A title"
		}})
		e, err := engine.New(m, apitest.Tokenizer{}, engine.Options{CacheEntries: 2})
		require.NoError(t, err)
		c := testConfig(FromEngine(e))
		c.NewID = numbered("id%d")
		c.StrictModelNames = false
		h := New(c)
		post := func(body string) (message struct {
			Content json.RawMessage
			Usage   struct {
				Cached int `json:"cache_read_input_tokens"`
				Input  int `json:"input_tokens"`
			}
		}) {
			w := call(h, "POST", "/v1/messages", `{"max_tokens":600`+hint+body)
			require.Equal(t, 200, w.Code, w.Body)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &message))
			return message
		}
		first := post(`,` + user + anthropicTools + `}`)
		for i := range 20 {
			post(fmt.Sprintf(`,"messages":[{"role":"user","content":"%d: a title"}]}`, i))
		}
		blocks := testenv.FromJSON[[]struct{ ID string }](t, first.Content)
		require.Len(t, blocks, 2)
		next := post(fmt.Sprintf(`,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":%s},{"role":"user","content":[{"type":"tool_result","tool_use_id":"%s","content":"22"},{"type":"tool_result","tool_use_id":"%s","content":"30"}]}]%s}`,
			first.Content, blocks[0].ID, blocks[1].ID, anthropicTools))
		require.Greater(t, next.Usage.Cached, first.Usage.Input)
		require.Regexp(t, `ringmaster_prefix_cache_evicted_tokens_total [1-9]`, call(h, "GET", "/metrics", "").Body.String())
		require.NoError(t, e.Close(context.Background()))
		require.Empty(t, m.Violations())
	}
}
