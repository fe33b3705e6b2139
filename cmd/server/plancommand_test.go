package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/model/synthetic"
)

// planJSON runs plan and reads its JSON.
func planJSON(t *testing.T, args ...string) (p struct {
	planned
	Further *planned
}, err error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	out, err := command(t, append([]string{"plan", "--json"}, args...)...)
	if exitCode(err) == 2 {
		return p, err
	}
	require.NoError(t, json.Unmarshal([]byte(out), &p), "%v: %s", err, out)
	left, rerr := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, rerr)
	require.Empty(t, left, "the shape is removed")
	return p, err
}

// TestPlanPresets: every preset's shape can be planned, and its routed experts are
// divided so that memory and bytes for a token of all ranks add up to those of one.
func TestPlanPresets(t *testing.T) {
	all := testenv.Rest(t, testenv.Full, "seven of eight presets")
	for i, preset := range presetNames() {
		if i%8 != 0 && !all {
			continue
		}
		one, err := planJSON(t, "--preset", preset, "--host", "4096GiB,1000GB/s")
		require.NoError(t, err)
		require.True(t, one.Fits)
		require.Equal(t, one.Limit, one.Context, "memory enough for the whole context")
		require.Zero(t, one.Bounds.Wire)
		require.InDelta(t, 1e12/float64(one.Bounds.Bytes[0]), one.Bounds.Decode, 0.01)
		require.Less(t, one.Bounds.Bytes[0], one.Weights, "a token reads a part of the experts")

		two, err := planJSON(t, "--preset", preset, "--host", "4096GiB,1000GB/s,x2", "--link", "400g")
		require.NoError(t, err)
		require.Equal(t, one.Ranks[0].Experts.Len(), two.Ranks[0].Experts.Len()+two.Ranks[1].Experts.Len())
		require.Greater(t, two.Bounds.Decode, one.Bounds.Decode)
		require.Less(t, two.Ranks[0].Resident, one.Ranks[0].Resident)
	}
}

// TestPlanDecides: what fits and what does not, shares by memory, what a further host
// brings, and that the bound follows the slower of memory and link.
func TestPlanDecides(t *testing.T) {
	p, err := planJSON(t, "--preset", "v4-flash", "--host", "128GiB,546GB/s,mac", "--host", "128GiB,546GB/s,mac")
	require.NoError(t, err)
	require.Equal(t, int64(96<<30), p.Ranks[0].Offer, "three quarters of a Mac's memory")
	require.Equal(t, p.Ranks[0].Offer-p.Ranks[0].Resident, p.Ranks[0].Free)
	require.Positive(t, p.Ranks[0].Free)
	require.NotNil(t, p.Further)
	require.GreaterOrEqual(t, p.Further.Caches, p.Caches)
	fast := p.Bounds.Decode
	p, err = planJSON(t, "--preset", "v4-flash", "--host", "128GiB,546GB/s,mac,x2", "--link", "0.001GB/s")
	require.NoError(t, err)
	require.InDelta(t, float64(p.Bounds.Wire)/1e6, 1/p.Bounds.Decode-1/fast, 0.01)

	p, err = planJSON(t, "--preset", "v4-flash", "--host", "128GiB,mac")
	require.Equal(t, 4, exitCode(err))
	require.ErrorContains(t, err, "it does not fit: ")
	require.False(t, p.Fits)
	require.True(t, p.Further.Fits, "two of them hold it")
	require.Len(t, p.Further.Ranks, 2)

	_, err = planJSON(t, "--preset", "v4-flash", "--host", "256GiB", "--host", "32GiB")
	require.Equal(t, 4, exitCode(err), "an even division")
	p, err = planJSON(t, "--preset", "v4-flash", "--host", "256GiB", "--host", "32GiB", "--shares", "memory")
	require.NoError(t, err)
	require.Greater(t, p.Ranks[0].Experts.Len(), 10*p.Ranks[1].Experts.Len())
	require.Zero(t, p.Bounds.Decode, "no rates are known")
	_, err = planJSON(t, "--preset", "k2", "--host", "16GiB")
	require.Equal(t, 4, exitCode(err), "no eight of them hold it")
}

// TestPlanOfFile plans a true file, as text too, with both shares.
func TestPlanOfFile(t *testing.T) {
	c, err := synthetic.Preset("tiny")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "m.gguf")
	_, err = c.WriteFile(path)
	require.NoError(t, err)
	p, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,threads=2,x2", "--share", "all", "--ctx", "100")
	require.NoError(t, err)
	require.Equal(t, 100, p.Context)
	experts, err := planJSON(t, "--model", path, "--host", "2GiB,10GB/s,threads=2,x2", "--ctx", "100")
	require.NoError(t, err)
	require.Equal(t, 2*experts.Bounds.Wire, p.Bounds.Wire, "two exchanges a layer")
	out, err := command(t, "plan", "--model", path, "--host", "2GiB,10GB/s,offer=1GiB")
	require.NoError(t, err)
	for _, want := range []string{"it fits: context of", "as given", "decode of one sequence: at most", "no prediction without", "with 2 hosts"} {
		require.Contains(t, out, want)
	}
	out, err = command(t, "plan", "--preset", "v3", "--host", "16GiB")
	require.Equal(t, 4, exitCode(err))
	require.Contains(t, out, "it does not fit: rank 0 needs")
	require.Contains(t, out, "eight hosts like these do not hold it either")
}

// TestPlanCountsSums: a dense FFN has a sum only where it is divided, which
// the blocks of V2-Lite's weights do not allow.
func TestPlanCountsSums(t *testing.T) {
	for _, c := range []struct {
		preset, share string
		sums, width   int
	}{{"v3", "experts", 58, 7168}, {"v3", "all", 122, 7168}, {"v2-lite", "experts", 26, 2048}, {"v2-lite", "all", 53, 2048}} {
		p, err := planJSON(t, "--preset", c.preset, "--host", "512GiB,800GB/s,x2", "--share", c.share)
		require.NoError(t, err)
		require.EqualValues(t, c.sums*c.width*2, p.Bounds.Wire, "%s, %s", c.preset, c.share)
	}
}

// The model of this host's server, in the environment, does not hinder a preset.
func TestPlanPresetBesideEnvironment(t *testing.T) {
	t.Setenv("RINGMASTER_MODEL", "/models/of-the-server.gguf")
	p, err := planJSON(t, "--preset", "v2-lite", "--host", "64GiB")
	require.NoError(t, err)
	require.Contains(t, p.Model, "v2-lite")
	for _, preset := range []string{"v3.2", "glm-5"} {
		p, err = planJSON(t, "--preset", preset, "--host", "1TiB")
		require.NoError(t, err)
		require.Contains(t, p.Model, preset)
		require.True(t, p.Fits)
	}
	_, err = planJSON(t, "--host", "64GiB")
	require.ErrorContains(t, err, "of-the-server.gguf")
}

// TestPlanInput: what cannot be planned has exit code 2 and one line with the cure.
func TestPlanInput(t *testing.T) {
	for args, want := range map[string]string{
		"--preset v3":                              "0 hosts; give one to eight",
		"--preset v3 --host 1GiB,x8 --host 1GiB":   "9 hosts",
		"--host 1GiB":                              "give --model FILE, or --preset",
		"--host 1GiB --preset v3 --model x":        "give --model FILE, or --preset",
		"--host 1GiB --preset v9":                  `--preset is "v9"; expected glm-5`,
		"--host 1GiB --model nothing.gguf":         "nothing.gguf",
		"--host 1GiB --model x --experts q8_0":     "a file has its own",
		"--host 1GiB --preset v3 --experts q99":    `--experts is "q99"`,
		"--host many --preset v3":                  `"many"; expected MEMORY`,
		"--host 1GiB,fast --preset v3":             `"fast"; expected MEMORY`,
		"--host 1GiB,-1GB/s --preset v3":           `"-1GB/s"; expected`,
		"--host 1GiB,offer=2GiB --preset v3":       `"offer=2GiB"`,
		"--host 1GiB,threads=0 --preset v3":        `"threads=0"`,
		"--host 1GiB,x9 --preset v3":               `"x9"`,
		"--host 1GiB --preset v3 --link tape":      `--link is "tape"`,
		"--host 1GiB --preset v3 --share some":     "--share",
		"--host 1GiB --preset v3 --shares 1,2":     "2 numbers for 1 ranks",
		"--host 1GiB --preset v3 --reduce mean":    "mean",
		"--host 1GiB --preset v3 --sequences 0":    `--sequences is "0"`,
		"--host 900GiB --preset v3 --ctx 99999999": "allows at most",
		"--host 1GiB --preset v3 more":             `unknown command "more"`,
		"--host 1GiB --preset v3 --transport tcp":  "unknown flag: --transport",
	} {
		_, err := planJSON(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want)
		require.Equal(t, 2, exitCode(err), args)
		require.NotContains(t, err.Error(), "\n")
	}
}
