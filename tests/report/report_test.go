package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const events = `{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestTool","Output":"    a_test.go:7: NOT CHECKED: no tool here\n"}
{"Action":"output","Package":"a","Test":"TestTool","Output":"--- SKIP: TestTool (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestTool"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
`

// TestStages: what a stage shows, whether it passed, and what the summary says.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		name, print, exit string
		allow             string
		good, all         bool // the stage, the summary
		shown, summary    string
	}{
		{"passes", events, "0", "", true, true, "ok  \ta\t0.1s\n", "1  NOT CHECKED: no tool here\n\n1 passed, 0 failed, 1 skipped\n"},
		{"allowed", events, "0", "# none on the runner\n^stage: a: TestTool: NOT", true, true, "", "1 passed, 0 failed, 1 skipped\n"},
		{"not allowed", events, "0", "^other", true, false, "", "1 passed, 1 failed, 0 skipped\n"},
		{"command fails", events, "3", "", false, false, "", "1 passed, 1 failed, 1 skipped\n"},
		{"test fails", events + `{"Action":"output","Package":"b","Test":"TestBad","Output":"wrong\n"}
{"Action":"fail","Package":"b","Test":"TestBad"}
{"Action":"fail","Package":"b"}
`, "1", "", false, false, "wrong\n", "FAILED: stage: b: TestBad\n\n1 passed, 1 failed, 1 skipped\n"},
		{"not built", `{"Action":"build-output","Output":"syntax\n"}
{"Action":"fail","Package":"b"}
`, "1", "", false, false, "syntax\n", "FAILED: stage: b\n\n0 passed, 1 failed, 0 skipped\n"},
		{"script", "NOT CHECKED: no emulator\n", "0", "", true, false, "NOT CHECKED: no emulator\n", "0 passed, 0 failed, 1 skipped\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			in := filepath.Join(t.TempDir(), "in")
			require.NoError(t, os.WriteFile(in, []byte(c.print), 0o600))
			var out strings.Builder
			good, err := run(&out, dir, "stage", []string{"sh", "-c", "cat " + in + "; exit " + c.exit})
			require.NoError(t, err)
			require.Equal(t, c.good, good)
			require.Contains(t, out.String(), c.shown)
			require.NotContains(t, out.String(), "noise")
			allow := ""
			if c.allow != "" {
				allow = filepath.Join(t.TempDir(), "allow")
				require.NoError(t, os.WriteFile(allow, []byte(c.allow), 0o600))
			}
			out.Reset()
			all, err := summary(&out, dir, allow)
			require.NoError(t, err)
			require.Equal(t, c.all, all)
			require.True(t, strings.HasSuffix(out.String(), c.summary), out.String())
		})
	}
}
