package builtin

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeldOutWordingsAreNotInTraining runs the training text's own test: no
// question of the training text has a wording that is held out.
func TestHeldOutWordingsAreNotInTraining(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT CHECKED: no python3 here")
	}
	cmd := exec.CommandContext(t.Context(), python, "-B", "test_corpus.py")
	cmd.Dir = "../../scripts/train"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "OK")
}
