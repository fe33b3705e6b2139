//go:build metalsim

package metal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/fakeverbs"
)

// TestMetalOverRDMA: two ranks with two Thunderbolt cables, and three in a mesh, that
// compute on Metal and combine over RDMA give the bits of one rank on Metal.
func TestMetalOverRDMA(t *testing.T) {
	p := newProgram(t)
	want, log, err := p.logits(1, "--backend", "metal")
	require.NoError(t, err, log)
	metalOverRDMA(t, p, want)
	if testenv.Rest(t, testenv.Full, "the same as on macOS 26.2 and 27.0") {
		for _, version := range []string{"26.2", "27.0"} {
			t.Setenv("FAKEVERBS_PROFILE", version)
			metalOverRDMA(t, p, want)
		}
	}
}

// metalOverRDMA requires the logits want of several ranks.
func metalOverRDMA(t *testing.T, p *program, want []byte) {
	for _, c := range []struct {
		ranks          int
		script, matrix string
	}{
		{2, `
device en6 host=0 link=tb
device en7 host=0 link=tb
device en6 host=1 link=tb
device en7 host=1 link=tb
cable 0:en6 1:en6
cable 0:en7 1:en7
`, `[[null,["en6","en7"]],[["en6","en7"],null]]`},
		{3, `
device en6 host=0 link=tb
device en7 host=0 link=tb
device en6 host=1 link=tb
device en7 host=1 link=tb
device en6 host=2 link=tb
device en7 host=2 link=tb
cable 0:en6 1:en6
cable 0:en7 2:en6
cable 1:en7 2:en7
`, `[[null,"en6","en7"],["en6",null,"en7"],["en6","en7",null]]`},
	} {
		fabric := t.TempDir()
		matrix := filepath.Join(fabric, "matrix.json")
		require.NoError(t, os.WriteFile(matrix, []byte(c.matrix), 0o600))
		p.perRank = func(rank int) []string {
			return append(fakeverbs.Env(t, fabric, c.script, rank), "MLX_IBV_DEVICES="+matrix)
		}
		got, log, err := p.logits(c.ranks, "--backend", "metal", "--transport", "rdma")
		require.NoError(t, err, log)
		require.Contains(t, log, "transport=rdma")
		require.True(t, string(want) == string(got), "%d ranks give other bits than one:\n%s", c.ranks, log)
	}
}
