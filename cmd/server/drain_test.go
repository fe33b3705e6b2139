package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrainUsage: what cannot work is exit code 2 before anything is asked; a leader
// that is not there is 1. tests/cluster has the rest.
func TestDrainUsage(t *testing.T) {
	open := written(t, "a key that others may read")
	require.NoError(t, os.Chmod(open, 0o644))
	for want, tt := range map[string]struct {
		code int
		args []string
	}{
		"--rank is \"0\"; expect": {2, []string{"--rank", "0", "--coordinator", "127.0.0.1:1"}},
		"rank 0 leads the group":  {2, []string{"--coordinator", "127.0.0.1:1"}},
		"--rank":                  {2, []string{"--rank", "two"}},
		"HOST:PORT is missing":    {2, []string{"--rank", "2"}},
		"--coordinator is":        {2, []string{"--rank", "2", "--coordinator", "here"}},
		"--timeout is":            {2, []string{"--rank", "2", "--coordinator", "127.0.0.1:1", "--timeout", "0s"}},
		"--cluster-key-file":      {2, []string{"--rank", "2", "--coordinator", "127.0.0.1:1", "--cluster-key-file", open}},
		"unknown command":         {2, []string{"2"}},
		"no leader at 127.0.0.1:": {1, []string{"--rank", "2", "--coordinator", "127.0.0.1:1", "--timeout", "5s"}},
	} {
		_, err := command(t, append([]string{"drain"}, tt.args...)...)
		require.ErrorContains(t, err, want)
		require.Equal(t, tt.code, exitCode(err), "%v", err)
	}
}
