package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

const events = `{"Action":"run","Package":"ringmaster/a","Test":"TestGood"}
{"Action":"output","Package":"ringmaster/a","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"ringmaster/a","Test":"TestGood"}
{"Action":"output","Package":"ringmaster/a","Test":"TestTool","Output":"    a_test.go:7: NOT CHECKED: no tool here\n"}
{"Action":"output","Package":"ringmaster/a","Test":"TestTool","Output":"--- SKIP: TestTool (0.00s)\n"}
{"Action":"skip","Package":"ringmaster/a","Test":"TestTool"}
{"Action":"output","Package":"ringmaster/a","Output":"PASS\n"}
{"Action":"output","Package":"ringmaster/a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"ringmaster/a"}
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
		{"allowed", events, "0", "# none on the runner\n^stage: ringmaster/a: TestTool: NOT CHECKED: no tool here$", true, true, "", "1 passed, 0 failed, 1 skipped\n"},
		{"not allowed", events, "0", "^stage: ringmaster/a: TestOther: NOT CHECKED: no tool here$", true, false, "", "1 passed, 1 failed, 0 skipped\n"},
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
			in := testenv.WriteFile(t, filepath.Join(t.TempDir(), "in"), c.print)
			var out strings.Builder
			good, err := run(&out, dir, "stage", 0, []string{"sh", "-c", "cat " + in + "; exit " + c.exit})
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

// TestFloors: a stage in which too few tests pass, or none of a package, fails, and so does
// the summary.
func TestFloors(t *testing.T) {
	none := `{"Action":"output","Package":"ringmaster/b","Output":"ok  \tringmaster/b\t0.1s [no tests to run]\n"}
{"Action":"pass","Package":"ringmaster/b"}
`
	within := `{"Action":"pass","Package":"ringmaster/a","Test":"TestGood/within"}
`
	for _, c := range []struct {
		name, print, script string
		least               int
		why                 string // empty: it passes
	}{
		{"as many", events, "", 1, ""},
		{"no floor", none, "", 0, ""},
		{"nothing", "", "", 1, "0 tests passed, at least 1 must"},
		{"too few", events, "", 2, "1 tests passed, at least 2 must"},
		{"tests within tests", events + within, "", 2, "1 tests passed, at least 2 must"},
		{"of a script", events, events, 2, ""},
		{"of another stage", events, "", 2, "1 tests passed"},
		{"one package of two", events + none, "", 1, "ringmaster/b: no test has a name that -run asks for"},
		{"one that says so of a process of its own", `{"Action":"pass","Package":"ringmaster/b","Test":"TestB"}
` + none, "", 1, ""},
		{"a package of a script", events, events + none, 1, "ringmaster/b: no test"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			in := testenv.WriteFile(t, filepath.Join(t.TempDir(), "in"), c.print)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "other-1.json"), []byte(events), 0o600))
			if c.script != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "stage-1.json"), []byte(c.script), 0o600))
			}
			var out strings.Builder
			good, err := run(&out, dir, "stage", c.least, []string{"cat", in})
			require.NoError(t, err)
			require.Equal(t, c.why == "", good, out.String())
			require.Contains(t, out.String(), c.why)
			out.Reset()
			all, err := summary(&out, dir, "")
			require.NoError(t, err)
			require.Equal(t, c.why == "", all)
			require.Contains(t, out.String(), c.why)
		})
	}
}

// TestLeave: what excuses a skip is the level that testenv gave, where the stage has a
// lower one, or a line for this test; no words of the test itself.
func TestLeave(t *testing.T) {
	skipped := func(attribute, why string) string {
		text := `{"Action":"pass","Package":"ringmaster/a","Test":"TestGood"}
`
		if attribute != "" {
			text += `{"Action":"attr","Package":"ringmaster/a","Test":"TestPart","Key":"level","Value":"` + attribute + `"}
`
		}
		return text + `{"Action":"output","Package":"ringmaster/a","Test":"TestPart","Output":"    a_test.go:7: ` + why + `\n"}
{"Action":"skip","Package":"ringmaster/a","Test":"TestPart"}
`
	}
	const line = "^stage: ringmaster/a: TestPart: NOT CHECKED: no tool here$"
	for _, c := range []struct {
		name, print, level, allow string
		good                      bool
	}{
		{"full in the fast form", skipped("full", "NOT CHECKED: a part runs with RINGMASTER_FULL=1"), "", line, true},
		{"full in the full form", skipped("full", "NOT CHECKED: a part runs with RINGMASTER_FULL=1"), "1", line, false},
		{"a campaign", skipped("exhaustive", "NOT CHECKED: a part runs with -exhaustive"), "1", line, true},
		{"the words of a level", skipped("", "NOT CHECKED: a part runs with RINGMASTER_FULL=1"), "", line, false},
		{"the words of a campaign", skipped("", "NOT CHECKED: a part runs with -exhaustive"), "", line, false},
		{"not applicable", skipped("", "NOT APPLICABLE: invented"), "", line, false},
		{"invented", skipped("", "NOT CHECKED: no namespace in the mood"), "", line, false},
		{"allowed", skipped("", "NOT CHECKED: no tool here"), "", line, true},
		{"more than allowed", skipped("", "NOT CHECKED: no tool here today"), "", line, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(testenv.Variable, c.level)
			dir := t.TempDir()
			in, allow := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "allow")
			require.NoError(t, os.WriteFile(in, []byte(c.print), 0o600))
			require.NoError(t, os.WriteFile(allow, []byte(c.allow), 0o600))
			var out strings.Builder
			good, err := run(&out, dir, "stage", 1, []string{"cat", in})
			require.NoError(t, err)
			require.True(t, good)
			all, err := summary(&out, dir, allow)
			require.NoError(t, err)
			require.Equal(t, c.good, all, out.String())
		})
	}
}

// TestFormOfLeave: a line that is not anchored or names no test excuses nothing.
func TestFormOfLeave(t *testing.T) {
	for _, bad := range []string{
		"namespace", ": NOT APPLICABLE:", "^stage: ringmaster/a: TestPart: NOT CHECKED: no tool", "stage: ringmaster/a: TestPart: NOT CHECKED: no tool$",
		"^stage: ringmaster/a: .*: NOT CHECKED: no tool$", "^.*$", "^stage: ringmaster/a: TestPart: .*$", "^stage: ringmaster/a: Test(: NOT CHECKED: x$",
	} {
		file := testenv.WriteFile(t, filepath.Join(t.TempDir(), "allow"), bad+"\n")
		_, err := patterns(file)
		require.Error(t, err, bad)
	}
	all, err := patterns("../../.ci/allowed-skips")
	require.NoError(t, err)
	require.NotEmpty(t, all)
}

// TestLongPackages: the summary says which packages took long, the longest first.
func TestLongPackages(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stage.json"), []byte(events+`{"Action":"pass","Package":"ringmaster/b","Elapsed":20.6}
{"Action":"pass","Package":"ringmaster/c","Elapsed":300}
{"Action":"pass","Package":"ringmaster/d","Elapsed":19}
`), 0o600))
	var out strings.Builder
	_, err := summary(&out, dir, "")
	require.NoError(t, err)
	require.Contains(t, out.String(), "took longest:\n   300  stage ringmaster/c\n    21  stage ringmaster/b\n\n1 passed")
}
