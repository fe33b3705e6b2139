package agents

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/constraint"
	"ringmaster/internal/testenv"
	"ringmaster/model/chat"
)

// toolsOf finds the definitions of tools in a request of any dialect: objects with a name
// and a schema.
func toolsOf(v any, out map[string]chat.Function) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			toolsOf(item, out)
		}
	case map[string]any:
		name, _ := v["name"].(string)
		for _, member := range []string{"input_schema", "parameters"} {
			if schema, ok := v[member].(map[string]any); ok && chat.IsName(name) {
				text, err := json.Marshal(schema)
				if err != nil {
					panic(err)
				}
				out[name] = chat.Function{Name: name, Parameters: text}
			}
		}
		for _, member := range v {
			toolsOf(member, out)
		}
	}
}

// BenchmarkGrammars measures how long the grammar of the tools takes that each agent sends,
// by its transcript, and of 40 tools: those of all of them, again under other names until
// there are so many.
func BenchmarkGrammars(b *testing.B) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(b, err)
	var forty []chat.Function
	sets := map[string][]chat.Function{}
	for _, file := range files {
		data := testenv.ReadFile(b, file)
		list := testenv.FromJSON[[]sent](b, data)
		found := map[string]chat.Function{}
		for _, r := range list {
			body := testenv.FromJSON[any](b, r.Body)
			toolsOf(body, found)
		}
		require.NotEmpty(b, found)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, fn := range found {
			sets[name] = append(sets[name], fn)
			fn.Name += "_" + name
			forty = append(forty, fn)
		}
	}
	for i := 0; len(forty) < 40; i++ {
		fn := forty[i]
		fn.Name += fmt.Sprint("_", i)
		forty = append(forty, fn)
	}
	sets["40 tools"] = forty[:40]
	tokens := constraint.NewVocabulary(apitest.Tokenizer{})
	for name, tools := range sets {
		b.Run(fmt.Sprintf("%s, %d tools", name, len(tools)), func(b *testing.B) {
			for range b.N {
				e, err := chat.Formats[0].Grammar(&chat.Conversation{Options: chat.Options{Functions: tools}}, nil, apitest.Tokenizer{}.ID, nil)
				require.NoError(b, err)
				_, err = constraint.Compile(e, tokens, nil)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1e3/float64(b.N), "ms/compile")
		})
	}
}
