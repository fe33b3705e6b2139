//go:build unix

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// correctness is the program behind scripts/correctness.sh, built once.
var correctness = sync.OnceValues(func() (string, error) {
	path := filepath.Join(dir, "correctness")
	cmd := exec.Command("go", "build", "-o", path, "./correctness")
	out, err := cmd.CombinedOutput()
	os.Stderr.Write(out)
	return path, err
})

func compare(t *testing.T, flags ...string) (out string, code int) {
	t.Helper()
	path, err := correctness()
	require.NoError(t, err)
	p := harness.Run(t, nil, append([]string{path}, flags...)...)
	code, err = p.Wait(testenv.Within(t, 4*hangLimit))
	require.NoError(t, err, "%s", p.Log)
	t.Logf("%s", p.Log)
	return p.Log.String(), code
}

// TestCorrectness compares one rank with clusters of several sizes, that of the README with
// the default of --share among them.
func TestCorrectness(t *testing.T) {
	t.Parallel()
	binary := program(t)
	runs := [][]string{{"--ranks", "3", "--share", "all:2,1,1", "--prompts", "1,130", "--tokens", "12"},
		{"--ranks", "3", "--prompts", "1,130", "--tokens", "12"}}
	if testenv.Rest(t, testenv.Full, "two ranks that share experts, and a longer prompt") {
		runs = [][]string{{"--ranks", "3", "--share", "all:2,1,1", "--prompts", "1,130,700", "--tokens", "20"},
			{"--ranks", "2", "--share", "experts", "--prompts", "1,130,700", "--tokens", "40"},
			{"--ranks", "3", "--prompts", "1,130,700", "--tokens", "20"}}
	}
	if testenv.Rest(t, testenv.Exhaustive, "five ranks, long prompts and a deep model") {
		runs = [][]string{{"--ranks", "2"}, {"--ranks", "3"}, {"--ranks", "3", "--share", "experts:2,1,1"}, {"--ranks", "5", "--share", "all"},
			{"--ranks", "2", "--share", "experts", "--model", model(t, slowModel), "--", "--ctx", "8192"}}
	}
	for _, flags := range runs {
		out, code := compare(t, append([]string{"--binary", binary}, flags...)...)
		require.Zero(t, code)
		require.Contains(t, out, "same bits")
		require.Equal(t, !slices.Contains(flags, "--share"), strings.Contains(out, "--share auto chose "), "what was chosen is printed")
	}
}

// TestCorrectnessDetectsDifferences checks that a cluster with other weights than
// the one rank is detected with either --reduce.
func TestCorrectnessDetectsDifferences(t *testing.T) {
	testenv.Need(t, testenv.Full, "clusters whose answers differ")
	t.Parallel()
	wrapper := filepath.Join(t.TempDir(), "wrong")
	script := "#!/bin/sh\ncase \" $* \" in\n*' --distributed '*) set -- \"$@\" --model '" + model(t, twinModel) + "' ;;\nesac\nexec '" + program(t) + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(wrapper, []byte(script), 0o755))
	out, code := compare(t, "--binary", wrapper, "--model", model(t, slowModel), "--prompts", "20", "--tokens", "8", "--", "--ctx", "4096")
	require.Equal(t, 1, code)
	require.Regexp(t, `exact .*DIFFERENT: token \d of 8: one rank ".*" \(.*\), 2 ranks ".*"`, out)
	require.Regexp(t, `sum .*DIFFERENT: token .*; the median must not exceed 0.1`, out)
}
