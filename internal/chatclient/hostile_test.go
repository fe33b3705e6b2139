package chatclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/safetext"
	"ringmaster/internal/testenv"
)

// TestHostileNamesAndAnswers: a conversation with a server that puts escape sequences
// into names, answers and usage shows nothing but text and styles.
func TestHostileNamesAndAnswers(t *testing.T) {
	bad := "\x1b[2J\x1b]52;c;eA==\x07\u009b6n\r\u202e\u2066\x7f\x1b[31m\x1b[5A"
	name := testenv.JSON(t, "m"+strings.Repeat(bad, 1000))
	text := testenv.JSON(t, "**bold** `c"+bad+"` &#27;]0;t&#7; [l](<&#27;c>)\n\n```"+bad+"\ncode"+bad+"\n```\n\n| a"+bad+" |\n|---|\n| b |\n\n# h"+bad+"\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `{"data":[{"id":%s},{"id":%s}]}`, name, name)
			return
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":%s}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", text, text)
		fmt.Fprintf(w, "data: {\"choices\":[{\"finish_reason\":%s}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: {\"error\":{\"message\":%s}}\n\n", name, name)
	}))
	defer server.Close()
	sets := regexp.MustCompile(`\x1b\[[0-9;]*m|\r\x1b\[([0-9]+A\x1b\[)?J`)
	for _, styled := range []bool{false, true} {
		o := testOptions()
		o.Styled = styled
		out, _ := talk(t, server.URL, o, "question", "/model", "/model x\x1b[2J", "/set a\u202e b", "/retry", "/bogus\x1b[2J", "/load /no\x1b[2J")
		require.Contains(t, out, "bold")
		require.Contains(t, out, "code")
		require.Less(t, len(out), 40<<10)
		if styled {
			out = sets.ReplaceAllString(out, "")
		}
		require.False(t, strings.ContainsFunc(out, safetext.Unsafe), "%q", out)
		require.NotContains(t, out, "\x1b[31m")
	}
}
