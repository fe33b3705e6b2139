// Package commands runs what README.md, docs/operations.md and docs/scaling.md tell
// their readers to type. Every command of their shell blocks has a verdict in
// verdicts_test.go: how it is run here, which test runs it, or why nothing here can.
package commands

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

const root = "../.."

// documents are those with commands that the test runs.
var documents = []string{"README.md", "docs/operations.md", "docs/scaling.md"}

// command is a command of a document, without the comment behind it.
type command struct {
	document string
	line     int
	text     string // of all its lines
}

var (
	fence   = regexp.MustCompile("^\\s*(```+|~~~+)\\s*(\\S*)")
	comment = regexp.MustCompile(`\s+#[^'"]*$`)
)

// notShell are the languages of blocks that have no commands.
var notShell = []string{"", "json", "yaml", "toml", "text"}

// commandsOf reads the shell blocks of a document. A command continues after a backslash
// at the end of a line, and until its quotes are closed.
func commandsOf(t *testing.T, document, text string) (out []command) {
	t.Helper()
	open, shell := "", false
	var now *command
	for i, line := range strings.Split(text, "\n") {
		if m := fence.FindStringSubmatch(line); m != nil && (open == "" || strings.HasPrefix(m[1], open) && m[2] == "") {
			require.Nil(t, now, "%s:%d: the block ends within a command", document, i+1)
			if open != "" {
				open = ""
				continue
			}
			open, shell = m[1], slices.Contains([]string{"sh", "bash", "shell", "console"}, m[2])
			require.True(t, shell || slices.Contains(notShell, m[2]), "%s:%d: is a block of %q run in a shell? Say so in documents_test.go", document, i+1, m[2])
			continue
		}
		if open == "" || !shell || now == nil && (strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")) {
			continue
		}
		if now == nil {
			now = &command{document: document, line: i + 1, text: line}
		} else {
			now.text += "\n" + line
		}
		if strings.Count(now.text, "'")%2 == 0 && !strings.HasSuffix(line, `\`) {
			now.text = comment.ReplaceAllString(now.text, "")
			out, now = append(out, *now), nil
		}
	}
	require.Empty(t, open, "%s: a block does not end", document)
	return out
}

// all are the commands of all documents.
func all(t *testing.T) (out []command) {
	t.Helper()
	for _, d := range documents {
		text := testenv.ReadFile(t, filepath.Join(root, d))
		found := commandsOf(t, d, string(text))
		require.NotEmpty(t, found, d)
		out = append(out, found...)
	}
	return out
}

func TestCommandsOf(t *testing.T) {
	text := "a\n```sh\none    # of 'two' kinds\n\n# a comment\ntwo \\\n    three\ncurl -d '{\n  \"a\": 1 # no comment\n}'\n```\n```json\n{}\n```\n  ```bash\n  four | five > six\n  ```\n"
	var got []string
	for _, c := range commandsOf(t, "d", text) {
		got = append(got, c.text)
	}
	require.Equal(t, []string{"one    # of 'two' kinds", "two \\\n    three", "curl -d '{\n  \"a\": 1 # no comment\n}'", "  four | five > six"}, got)
}

// TestEachCommandHasAVerdict: a new command is run, or it is said why not.
func TestEachCommandHasAVerdict(t *testing.T) {
	commands := all(t)
	judged := map[command]string{}
	for _, g := range groups {
		for _, s := range g.steps {
			c := s.find(t, commands)
			require.Empty(t, judged[c], "%s:%d has two verdicts: %s", c.document, c.line, c.text)
			judged[c] = g.name
			for _, w := range slices.Concat(append([][]swap{s.swaps}, s.also...)...) {
				require.NotEmpty(t, w.why, "%s:%d: why is %q replaced?", c.document, c.line, w.from)
			}
		}
	}
	for _, e := range elsewhere {
		c := step{document: e.document, has: e.has}.find(t, commands)
		require.Empty(t, judged[c], "%s:%d has two verdicts: %s", c.document, c.line, c.text)
		judged[c] = e.why
		require.True(t, e.test == "" != (e.why == ""), "%s:%d: either a test or a reason", c.document, c.line)
		if e.test != "" {
			judged[c] = e.test
			folder, name, _ := strings.Cut(e.test, " ")
			require.True(t, hasTest(t, folder, name), "%s:%d: there is no test %s", c.document, c.line, e.test)
		}
	}
	for _, c := range commands {
		require.NotEmpty(t, judged[c], "%s:%d has no verdict in tests/commands/verdicts_test.go: say how it is run, which test runs it, or why it cannot be: %s", c.document, c.line, c.text)
	}
}

// hasTest reports whether a folder has a test.
func hasTest(t *testing.T, folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	require.NoError(t, err)
	return slices.ContainsFunc(files, func(f string) bool {
		text := testenv.ReadFile(t, f)
		return strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}
