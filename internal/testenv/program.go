package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ProgramVariable is the environment variable with the path of a program that
// BuildProgram uses instead of building one. scripts/test.sh sets it, so that the
// packages do not link the same program one after the other.
const ProgramVariable = "TEST_PROGRAM"

// BuildProgram puts the program, cmd/server of this checkout, into the folder dir, and
// returns its path. It builds it unless ProgramVariable names one.
func BuildProgram(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "ringmaster")
	if built := os.Getenv(ProgramVariable); built != "" {
		if err := link(path, built); err != nil {
			return "", fmt.Errorf("%s: %w", ProgramVariable, err)
		}
		return path, nil
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "ringmaster/cmd/server").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, nil
}

// Program puts the program into a folder of the test and returns its path. It ends the test
// if that fails.
func Program(t testing.TB) string {
	t.Helper()
	path, err := BuildProgram(t.Context(), t.TempDir())
	require.NoError(t, err)
	return path
}

// link makes path a hard link to built, or a copy on another file system. It removes an
// existing file first, because writing to it could write to built.
func link(path, built string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if os.Link(built, path) == nil {
		return nil
	}
	from, err := os.Open(built)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
