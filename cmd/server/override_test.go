package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/synthetic"
)

// TestOverrideKV: a file without YaRN's betas that is given some computes what a file that
// has them does.
func TestOverrideKV(t *testing.T) {
	dir := t.TempDir()
	const ids = "1 2 3 4 5 6 7 8 9 10"
	write := func(name string, beta float64) string {
		c, err := synthetic.Preset("k2-tiny")
		require.NoError(t, err)
		c.Latent.BetaFast, c.Latent.BetaSlow = beta, beta // 0: the file has no such keys
		path := filepath.Join(dir, name)
		_, err = c.WriteFile(path)
		require.NoError(t, err)
		return path
	}
	with, without := write("with.gguf", 1), write("without.gguf", 0)
	const fast, slow = "deepseek2.rope.scaling.yarn_beta_fast=float:1", "deepseek2.rope.scaling.yarn_beta_slow=float:1"
	want := logitsOf(t, ids, "--model", with)
	require.NotEqual(t, want, logitsOf(t, ids, "--model", without))
	require.Equal(t, want, logitsOf(t, ids, "--model", without, "--override-kv", fast, "--override-kv", slow))

	for text, says := range map[string]string{
		"x":                               "expected KEY=TYPE:VALUE",
		"deepseek2.block_count=str:many":  "another type",
		"general.architecture=str:other":  "the file was read by it",
		"deepseek2.attention.x=float:0.5": "deepseek2.attention.x", // the model does not know it
	} {
		_, err := command(t, "logits", "--model", with, "--tokens", written(t, ids), "--out", filepath.Join(dir, "o"), "--override-kv", text)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "\n")
		if text != "deepseek2.attention.x=float:0.5" {
			require.Equal(t, 2, exitCode(err), "%v", err)
		}
	}
}
