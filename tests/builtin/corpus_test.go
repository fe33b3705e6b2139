package builtin

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestHeldOutWordingsAreNotInTraining runs the test of the training text: no
// question in it has a held-out wording.
func TestHeldOutWordingsAreNotInTraining(t *testing.T) {
	testenv.Need(t, testenv.Full, "the texts of the training")
	python := testenv.NeedTool(t, "python3", "python3 is not installed")
	cmd := exec.CommandContext(t.Context(), python, "-B", "test_corpus.py")
	cmd.Dir = "../../scripts/train"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "OK")
}
