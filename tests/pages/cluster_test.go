//go:build unix

package pages

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestCluster: the program with its built-in model on three ranks, seen on the chat
// page and the page of the cluster, while a rank is killed and comes back.
func TestCluster(t *testing.T) {
	chromium(t)
	program := testenv.Program(t)
	c, err := harness.NewCluster(harness.Options{Program: program, Size: 3})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	ctx := testenv.Within(t, scriptLimit)
	// Rank 2 is late, so that the page is there first.
	require.NoError(t, c.Start(0, 1))
	do := func(words string) {
		verb, rank, _ := strings.Cut(words, " ")
		r, err := strconv.Atoi(rank)
		require.NoError(t, err, words)
		switch verb {
		case "kill":
			_, err = c.Signal(r, syscall.SIGKILL)
			require.NoError(t, err)
			_, err = c.Rank(r).Wait(ctx)
			require.NoError(t, err)
		case "start":
			require.NoError(t, c.Start(r))
			require.NoError(t, c.UntilReady(ctx))
		}
	}
	play(t, "cluster.mjs", "http://"+c.HTTP, do, picturesEnv(t))
}

// pictures is the folder in which scripts leave pictures of the pages, if it is set:
// that is how those of the documentation are made.
var pictures = os.Getenv("RINGMASTER_PICTURES")

func picturesEnv(t *testing.T) string {
	if pictures == "" {
		return "PICTURES="
	}
	path, err := filepath.Abs(pictures)
	require.NoError(t, err)
	return "PICTURES=" + path
}
