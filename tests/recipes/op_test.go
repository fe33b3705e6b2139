package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

const root = "../.."

// filesOfRecipe lists the files that the recipe for an op names, in its order.
func filesOfRecipe(t *testing.T) []string {
	text := testenv.ReadFile(t, filepath.Join(root, "CONTRIBUTING.md"))
	_, recipe, found := strings.Cut(string(text), "### Add an op\n")
	require.True(t, found)
	recipe, _, _ = strings.Cut(recipe, "\n### ")
	var files []string
	for _, m := range regexp.MustCompile("`((?:kernels|metal)/[\\w/.]+)`").FindAllStringSubmatch(recipe, -1) {
		files = append(files, m[1])
	}
	require.Greater(t, len(files), 5)
	return files
}

// copyTree copies the packages that ops are in, and what these import.
func copyTree(t *testing.T, to string) {
	for _, part := range []string{"gguf", "kernels", "metal", "parallel/assign", "parallel/cost", "internal", "scripts", "tests/metalsim"} {
		require.NoError(t, os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join(root, part))))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		text := testenv.ReadFile(t, filepath.Join(root, file))
		require.NoError(t, os.WriteFile(filepath.Join(to, file), text, 0o644))
	}
}

// follow adds the op Example to the file of the copy.
func follow(t *testing.T, dir, file string) {
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	require.NoError(t, err, "CONTRIBUTING.md names a file that does not exist")
	changed, copied, err := twin(file, string(text))
	require.NoError(t, err)
	require.Positive(t, copied, "CONTRIBUTING.md names %s, which has nothing of Add", file)
	require.NoError(t, os.WriteFile(path, []byte(changed), 0o644))
}

// command runs a command in the copy.
func command(t *testing.T, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestOp follows the recipe for an op: it adds Example, a copy of Add, in each file that
// the recipe names. The copy builds, and the backends around another one pass Example on.
// Without any one of the steps in plain Go, it does not build.
func TestOp(t *testing.T) {
	dir := t.TempDir()
	copyTree(t, dir)
	files := filesOfRecipe(t)
	before := map[string][]byte{}
	for _, file := range files {
		text := testenv.ReadFile(t, filepath.Join(dir, file))
		before[file] = text
		follow(t, dir, file)
	}
	plain := []string{"CGO_ENABLED=0"} // C takes long to compile; -trimpath lets copies share the build cache
	out, err := command(t, dir, plain, "go", "test", "-trimpath", "-vet=off", "-v", "-run", "TestResults", "./kernels/deferred", "./kernels/profile", "./kernels/record")
	require.NoError(t, err, out)
	require.Equal(t, 4, strings.Count(out, "/Example ("), out)

	for _, file := range files {
		if !strings.HasPrefix(file, "kernels/contract/") && !strings.HasPrefix(file, "kernels/reference/") {
			continue
		}
		path := filepath.Join(dir, file)
		text := testenv.ReadFile(t, path)
		require.NoError(t, os.WriteFile(path, before[file], 0o644))
		out, err := command(t, dir, plain, "go", "build", "-trimpath", "./kernels/...")
		require.Error(t, err, "it builds without %s", file)
		require.Contains(t, out, "Example")
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}

	// Of C only the syntax is checked: kernels/cpu takes minutes to compile.
	out, err = command(t, dir, nil, "cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "kernels/cpu/ops_dense.c", "kernels/cpu/ops_kernels_portable.c")
	require.NoError(t, err, out)
}
