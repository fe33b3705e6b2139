package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuildProgram: a named program is used, and a missing one is an error that says so.
func TestBuildProgram(t *testing.T) {
	built := filepath.Join(t.TempDir(), "built")
	require.NoError(t, os.WriteFile(built, []byte("#!/bin/sh\n"), 0o755))
	t.Setenv(ProgramVariable, built)
	dir := t.TempDir()
	_, err := BuildProgram(t.Context(), dir)
	require.NoError(t, err)
	path, err := BuildProgram(t.Context(), dir) // once more into the same folder
	require.NoError(t, err)
	for _, p := range []string{built, path} {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.EqualValues(t, 10, info.Size(), p)
		require.NotZero(t, info.Mode()&0o100, "%s must be executable", p)
	}
	t.Setenv(ProgramVariable, filepath.Join(t.TempDir(), "none"))
	_, err = BuildProgram(t.Context(), t.TempDir())
	require.ErrorContains(t, err, ProgramVariable)
	require.ErrorIs(t, err, os.ErrNotExist)
}
