// Package pages tests the pages that a server shows in a true Chromium: Debian's,
// driven by playwright-core from npm. The scripts beside this file say what is done
// and what must be seen.
package pages

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/api/apitest"
	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// scriptLimit ends a script that hangs.
const scriptLimit = 4 * time.Minute

// chromium is the browser's program; where the tests cannot run, they say so.
func chromium(t *testing.T) string {
	testenv.Need(t, testenv.Full, "the pages in a true Chromium, driven from npm")
	npm.Need(t)
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			require.NoError(t, npm.Install(t.Context(), "."))
			return path
		}
	}
	t.Skip("NOT CHECKED: no Chromium here, in which the pages are tested")
	return ""
}

// play runs a script of this folder, and does what it asks for: a line "do WORDS" is
// answered with a line when do has returned. Each check in the script prints a line
// "ok NAME"; a failure ends it with a stack trace.
func play(t *testing.T, script, url string, do func(words string), env ...string) {
	t.Helper()
	path := chromium(t)
	ctx := testenv.Within(t, scriptLimit)
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Env = append(append(os.Environ(), "CHROMIUM="+path, "URL="+url), env...)
	cmd.WaitDelay = 10 * time.Second
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	var all strings.Builder
	cmd.Stderr = &all
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := ""
	for buf := make([]byte, 4096); ; {
		n, err := out.Read(buf)
		for _, c := range buf[:n] {
			if line += string(c); c != '\n' {
				continue
			}
			all.WriteString(line)
			if words, ok := strings.CutPrefix(strings.TrimSpace(line), "do "); ok {
				do(words)
				_, err := io.WriteString(in, "done\n")
				require.NoError(t, err)
			}
			line = ""
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	require.NoError(t, err, "%s:\n%s", script, all.String())
	require.True(t, strings.HasSuffix(all.String(), "done\n"), "%s did not come to its end:\n%s", script, all.String())
	t.Logf("%s: %s", script, strings.ReplaceAll(strings.TrimSpace(all.String()), "\n", ", "))
}

const apiKey = "sk-test"

const call = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"

const twoCalls = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n" +
	"<｜DSML｜invoke name=\"clock\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"

// answers of the scripted model, by a word of the last turn.
var answers = []struct{ word, text string }{
	{"<tool_result>", "It is sunny."},
	{"both tools", twoCalls},
	{"weather", "I look.\n\n" + call},
	{"markdown", "# Title\n\nSome *emphasis* and `code`.\n\n```go\nfunc main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n"},
	{"code", "```go\n// one\nfunc main() string { return \"x\" }\n```\n\n```json\n{\"a\": 1}\n```\n\n```html\n<a href=\"x\">y</a>\n```\n\n```diff\n--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n```\n"},
	{"hostile", hostile},
	{"table", "| Country | Capital | Population | Description of the country |\n|---|---|--:|---|\n| Liechtenstein | Vaduz | 39,000 | A small country in the Alps between Austria and Switzerland |\n" +
		"| Bosnia-Herzegovina | Sarajevo | 3,200,000 | A country on the Balkans with a short coast |\n"},
	{"formula", "The roots of \\(a_1 x^2 + b_1 x + c_1 = 0\\) are\n\\[\nx_{1,2}\n= \\frac{-b_1 \\pm \\sqrt{b_1^2 - 4 a_1 c_1}}{2 a_1}\n\\]\nand $$\\sum_{i=1}^n x_i * y_i$$ too.\n"},
	{"poem", strings.Repeat("A line of a poem.\n\n", 100)},
	{"long", strings.Repeat("A line of a long answer, which continues for some time.\n\n", 3000)},
	{"", "Fine."},
}

// hostile is what a page must not run, load or take for its own.
const hostile = "<script>window.hacked = 1</script>\n\n<img src=x onerror=\"window.hacked = 1\">\n\n[click](javascript:window.hacked=1) " +
	"<a href=\"javascript:window.hacked=1\">click</a> ![secret](http://127.0.0.1:9/leak?x) [data](data:text/html,<script>window.hacked=1</script>)\n\n" +
	"<iframe src=\"http://127.0.0.1:9/\"></iframe> <svg onload=window.hacked=1> <style>body{display:none}</style> <form action=\"http://127.0.0.1:9/\"><button>Send</button></form>\n\n" +
	"```html\" onmouseover=\"window.hacked=1\n</code></pre><script>window.hacked = 1</script>\n```\n\ndata: [DONE]\n\n{{constructor.constructor('window.hacked=1')()}} <meta http-equiv=refresh content=0> the end"

// say is enginetest.Options.Say.
func say(history []int32) string {
	last := len(history) - 1
	for last > 0 && history[last] != apitest.User {
		last--
	}
	turn := apitest.Tokenizer{}.Decode(history[last:])
	thoughts := ""
	if history[len(history)-1] == apitest.Think {
		thoughts = "I think about it.</think>"
	}
	for _, a := range answers {
		if strings.Contains(turn, a.word) {
			return thoughts + restOf(a.text, turn)
		}
	}
	return ""
}

// restOf returns what follows in a text after the part with which a prompt ends, because
// the answer is to be continued.
func restOf(text, prompt string) string {
	for n := len(text); n > 0; n-- {
		if strings.HasSuffix(prompt, "</think>"+text[:n]) {
			return text[n:]
		}
	}
	return text
}

// TestChat: the chat page with a scripted model behind a key.
func TestChat(t *testing.T) {
	chromium(t)
	s := newServer(t, apiKey)
	play(t, "chat.mjs", "http://"+s.address, nil, "KEY="+apiKey)
}
