package metal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTablesAreCurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tables.metal")
	out, err := exec.Command("go", "run", "ringmaster/kernels/cpu/gentables", path).CombinedOutput()
	require.NoError(t, err, string(out))
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	have, err := os.ReadFile("shaders/tables.metal")
	require.NoError(t, err)
	require.True(t, string(want) == string(have), "shaders/tables.metal is old: run go generate ./metal")
}
