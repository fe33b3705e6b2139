package commands

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestScriptsKeepTheFolder: scripts that run the program find files by paths that are relative
// to the current folder.
func TestScriptsKeepTheFolder(t *testing.T) {
	testenv.Need(t, testenv.Full, "the scripts with relative paths")
	scripts, err := filepath.Abs(filepath.Join(root, "scripts"))
	require.NoError(t, err)
	dir := t.TempDir()
	testenv.WriteFile(t, filepath.Join(dir, "m.gguf"), testenv.ReadFile(t, filepath.Join(root, "model/builtin/builtin.gguf")))
	run := func(in, script string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(testenv.Within(t, limit), filepath.Join(scripts, script), args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.Contains(t, run(`{"text":"Hello"}`, "run.sh", "tokenize", "--model", "m.gguf"), `"ids"`)
	require.Contains(t, run("", "launch.sh", "--check", "--local", "1", "--model", "m.gguf"), "'--model' 'm.gguf'")
	run("", "correctness.sh", "--ranks", "2", "--model", "m.gguf", "--reduce", "exact", "--prompts", "1", "--tokens", "4", "--", "--threads", "1")
}
