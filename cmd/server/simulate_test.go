package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/bench"
	"ringmaster/internal/simulate"
	"ringmaster/internal/testenv"
)

// TestSimulate: text and JSON of every combination, the same at every call, and the
// times of bench's lines are those of the same rates given by flags.
func TestSimulate(t *testing.T) {
	var lines bytes.Buffer
	for _, m := range []bench.Measurement{
		{What: "prefill", N: 64, Sequences: 1, Seconds: []float64{0.64}},
		{What: "prefill", N: 512, Sequences: 1, Seconds: []float64{1.28, 1.2, 1.4}}, // 400 t/s
		{What: "decode", N: 64, Sequences: 1, Seconds: []float64{3.2}},
		{What: "decode", N: 60, Sequences: 8, Seconds: []float64{8}},
	} {
		require.NoError(t, json.NewEncoder(&lines).Encode(m))
	}
	require.NoError(t, json.NewEncoder(&lines).Encode(bench.Comparison{What: "comparison", Of: "decode"}))

	work := []string{"simulate", "--groups", "1,3", "--balance", "hash,leastconn", "--duration", "4m", "--warmup", "1m"}
	rates := append([]string{"--prefill", "400", "--decode", "1=20,8=60"}, work[1:]...)
	text, err := command(t, append([]string{"simulate"}, rates...)...)
	require.NoError(t, err)
	again, err := command(t, append(work, "--bench", written(t, lines.String()))...)
	require.NoError(t, err)
	require.Equal(t, text, again)
	require.Equal(t, 4, strings.Count(text, "breaks first: "))
	require.NotContains(t, text, "tokens in a step")
	guessed, err := command(t, append([]string{"simulate", "--drafts", "0.9"}, rates...)...)
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(guessed, "tokens in a step of a sequence, with 0.9 of its drafts right"))

	out, err := command(t, append([]string{"simulate", "--json"}, rates...)...)
	require.NoError(t, err)
	var groups []int
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var r simulate.Report
		require.NoError(t, dec.Decode(&r))
		require.Equal(t, r.Requests, r.Answered+r.Refused+r.Broken)
		groups = append(groups, r.Groups)
	}
	require.Equal(t, []int{1, 1, 3, 3}, groups)

	svg := filepath.Join(t.TempDir(), "load.svg")
	_, err = command(t, append([]string{"simulate", "--rate", "0.01,0.02", "--svg", svg}, rates...)...)
	require.NoError(t, err)
	requireDrawn(t, svg, "First token, p95", "Between two tokens, p99", "1 group, hash", "3 groups, leastconn", "0.01", "0.02")
}

// requireDrawn requires that a picture has these texts.
func requireDrawn(t *testing.T, path string, texts ...string) {
	t.Helper()
	svg := string(testenv.ReadFile(t, path))
	require.True(t, strings.HasPrefix(svg, "<?xml"), svg[:min(len(svg), 80)])
	for _, text := range texts {
		require.Contains(t, svg, ">"+text+"<")
	}
}

// TestSimulateRefuses: what cannot be simulated is one line with the cure, and exit code 2.
func TestSimulateRefuses(t *testing.T) {
	for want, args := range map[string]string{
		"Give --bench":                  "",
		"expected SEQUENCES=TOKENS":     "--prefill 4 --decode eight=2",
		"--decode is \"1=0\"":           "--prefill 4 --decode 1=0",
		"leave --prefill":               "--prefill 4 --bench " + written(t, ""),
		"must have a prefill":           "--bench " + written(t, `{"what":"decode","n":1,"sequences":1,"seconds":[1]}`),
		"line 2 of":                     "--bench " + written(t, "\n{}\n"),
		"one value of --activations":    "--bench " + written(t, `{"what":"decode","n":1,"sequences":1,"seconds":[1],"activations":15}`+"\n"+`{"what":"decode","n":1,"sequences":1,"seconds":[1],"activations":8}`),
		"--bench: open":                 "--bench " + filepath.Join(t.TempDir(), "none"),
		"--groups is \"0\"":             "--prefill 4 --decode 1=2 --groups 0",
		"--think is":                    "--prefill 4 --decode 1=2 --think -1s",
		"--cache-entries is":            "--prefill 4 --decode 1=2 --cache-entries -2",
		"--max-active is":               "--prefill 4 --decode 1=2 --max-active 0",
		"--spread is":                   "--prefill 4 --decode 1=2 --spread NaN",
		"--balance is \"random\"":       "--prefill 4 --decode 1=2 --balance random",
		"--drafts is \"2\"":             "--prefill 4 --decode 1=2 --drafts 2",
		"warm-up":                       "--prefill 4 --decode 1=2 --warmup 1h",
		"NaN":                           "--prefill NaN --decode 1=2",
		"1e+09 conversations at once":   "--prefill 4 --decode 1=2 --burst 1e9",
		"9.6e+08 requests":              "--prefill 4 --decode 1=2 --rate 1e6 --duration 4m --turns 4 --think 1ms",
		"4.8e+09 conversations at once": "--prefill 4 --decode 1=2 --rate 1e6 --duration 4m --groups 20 --turns 1000",
		"points on the ring":            "--prefill 4 --decode 1=2 --groups 10000 --points 65536",
		"may be repeated":               "--prefill 4 --decode 1=2 --retries 1000000000",
	} {
		_, err := command(t, append([]string{"simulate"}, strings.Fields(args)...)...)
		requireRefused(t, err, want, want)
	}
}
