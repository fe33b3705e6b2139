package dialect

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/engine"
	"ringmaster/engine/drafts"
	"ringmaster/model/chat"
)

// TestRelate: requests know the texts of tools and of the user as JSON writes them and
// without line numbers, and what the client expects.
func TestRelate(t *testing.T) {
	s := &Service{Tokenizer: apitest.Tokenizer{}}
	file := "     1\tfunc main() {\n     2\t\tprint(\"<a>\")\n     3\t}"
	messages := []chat.Message{
		{Role: chat.System, Content: "a\nb"}, {Role: chat.User, Content: "plain"},
		{Role: chat.Assistant, Content: "c\nd"}, {Role: chat.Tool, Content: file}, {Role: chat.User, Content: "say \"it\""},
	}
	requests := make([]engine.Request, 2)
	s.Relate(messages, "new\n", requests)
	var got []string
	for _, text := range requests[1].Related(context.Background()) {
		got = append(got, text.Source.String()+": "+apitest.Tokenizer{}.Decode(text.Tokens))
	}
	require.Equal(t, []string{
		"prediction: new\n", `prediction: new\n`,
		`text: say \"it\"`,
		"text: func main() {\n\tprint(\"<a>\")\n}", `text: func main() {\n\tprint(\"<a>\")\n}`,
	}, got)
	require.Equal(t, got[0], drafts.Prediction.String()+": new\n")

	requests = make([]engine.Request, 1)
	s.Relate([]chat.Message{{Role: chat.System, Content: "a\nb"}}, "", requests)
	require.Nil(t, requests[0].Related)
	big := []chat.Message{{Role: chat.User, Content: "\n" + strings.Repeat("x", mostRelated)}, {Role: chat.User, Content: "\ty"}}
	require.Equal(t, []string{"\ty"}, relatedTexts(big), "the last ones count")

	many := make([]chat.Message, 3*drafts.MostTexts)
	for i := range many {
		many[i] = chat.Message{Role: chat.User, Content: fmt.Sprint("\n", i)}
	}
	s.Relate(many, strings.Repeat("é", mostRelated)+"é", requests)
	found := requests[0].Related(context.Background())
	require.Len(t, found, drafts.MostTexts)
	require.Equal(t, strings.Repeat("é", mostRelated/2), apitest.Tokenizer{}.Decode(found[0].Tokens))
	require.Equal(t, fmt.Sprintf(`\n%d`, len(many)-1), apitest.Tokenizer{}.Decode(found[1].Tokens))
}

func TestUnnumbered(t *testing.T) {
	for in, want := range map[string]string{
		"1\ta\n2\tb": "a\nb", " 10→a\n 11→b\n": "a\nb\n", "1\ta\nb\nc\nd": "1\ta\nb\nc\nd", "no": "no", "12 a\n13 b": "12 a\n13 b",
	} {
		require.Equal(t, want, unnumbered(in))
	}
}
