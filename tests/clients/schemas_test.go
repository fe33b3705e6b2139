package clients

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/npm"
)

// pydantic is the version that made the golden file.
const pydantic = "2.13.4"

// The golden schemas of constraint/jsonschema are those that the true libraries make, and
// the libraries judge the values beside them alike.
func TestSchemasOfLibraries(t *testing.T) {
	testenv.Need(t, testenv.Full, "schemas of zod and pydantic, from their registries")
	golden := func(name string) string {
		return string(testenv.ReadFile(t, filepath.Join("..", "..", "constraint", "jsonschema", "testdata", name)))
	}
	ctx := testenv.Within(t, 5*time.Minute)
	t.Run("zod", func(t *testing.T) {
		npm.Need(t)
		if err := npm.Install(ctx, "."); err != nil {
			t.Skipf("NOT CHECKED: zod cannot be installed: %v", err)
		}
		out, err := exec.CommandContext(ctx, "node", "schemas.mjs").Output()
		require.NoError(t, err)
		require.JSONEq(t, golden("zod.json"), string(out))
	})
	t.Run("pydantic", func(t *testing.T) {
		testenv.NeedTool(t, "python3", "no python3 here, which pydantic needs")
		python := "python3"
		if out, err := exec.CommandContext(ctx, python, "-c", "import pydantic; print(pydantic.VERSION)").Output(); err != nil || strings.TrimSpace(string(out)) != pydantic {
			dir := filepath.Join(t.TempDir(), "venv")
			python = filepath.Join(dir, "bin", "python")
			for _, command := range [][]string{{"python3", "-m", "venv", dir}, {python, "-m", "pip", "install", "--quiet", "--retries", "0", "pydantic==" + pydantic}} {
				if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
					t.Skipf("NOT CHECKED: pydantic %s cannot be installed: %v: %.300s", pydantic, err, out)
				}
			}
		}
		out, err := exec.CommandContext(ctx, python, "schemas.py").Output()
		require.NoError(t, err)
		require.JSONEq(t, golden("pydantic.json"), string(out))
	})
}
