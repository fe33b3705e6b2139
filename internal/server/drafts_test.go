package server

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
	"ringmaster/node"
)

// TestBlockOfDrafts: whichever command runs the server, the node opens the block that drafts
// were to come from, here of a model that has none.
func TestBlockOfDrafts(t *testing.T) {
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	n := node.Options{Threads: 1, Context: 256, MaxTokens: 64, Sequences: 1, Overcommit: true}
	n.File.Path = path
	err = Run(testenv.Within(t, time.Minute), Options{Listen: "127.0.0.1:0", Drafts: Drafts{Block: node.Block{Use: true}}}, n)
	require.ErrorContains(t, err, "multi-token prediction")
}
