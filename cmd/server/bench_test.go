package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/bench"
	"ringmaster/internal/host"
	"ringmaster/internal/testenv"
)

// benchLines parses the output of bench --json.
func benchLines(t *testing.T, out string) []bench.Measurement {
	var all []bench.Measurement
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var m bench.Measurement
		require.NoError(t, d.Decode(&m))
		all = append(all, m)
	}
	return all
}

func TestBenchCommand(t *testing.T) {
	before := host.PeakMiB() // of the whole process
	out, err := command(t, "bench", "--prefill", "8,0,3", "--decode", "4", "--repeat", "2", "--threads", "1", "--json")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(out, "\n"), "a line for each")
	all := benchLines(t, out)
	require.Len(t, all, 3)
	for i, m := range all {
		require.Equal(t, []string{"prefill", "prefill", "decode"}[i], m.What)
		require.Equal(t, []int{8, 3, 4}[i], m.N)
		require.Equal(t, 1, m.Threads)
		require.Len(t, m.Seconds, 2)
		require.Positive(t, m.LoadS)
		require.Greater(t, m.FirstTokenS, m.LoadS)
		require.Equal(t, all[0].FirstTokenS, m.FirstTokenS)
		require.Positive(t, m.PeakMiB)
		if runtime.GOOS == "linux" {
			require.Positive(t, m.FileMiB)
			require.Positive(t, m.OwnMiB)
		}
		require.Equal(t, m.What == "decode", m.BytesPerToken > 0)
		require.Equal(t, m.What == "decode", m.StreamGBs > 0 || m.StreamError != "")
		require.GreaterOrEqual(t, m.StreamGBs, m.StreamMedianGBs)
		require.Less(t, m.PeakMiB, before+800, "the peak includes the buffer of the bandwidth measurement")
	}

	out, err = command(t, "bench", "--prefill", "0", "--decode", "2", "--repeat", "1", "--stream=false")
	require.NoError(t, err)
	require.Contains(t, out, "t/s (median of 1")
	require.Regexp(t, ` reads [\d.]+ [KMG]iB per token, [\d.]+ GB/s\n`, out)
	require.Regexp(t, `(?m)^load [\d.]+ s, first token after [\d.]+ s; peak memory \d+ MiB`, out)
	require.NotContains(t, out, "prefill")

	out, err = command(t, "bench", "--prefill", "3", "--decode", "0", "--repeat", "1", "--profile")
	require.NoError(t, err)
	require.Contains(t, out, "Embed token_embd")
	require.NotContains(t, out, "decode")

	svg := filepath.Join(t.TempDir(), "speed.svg")
	out, err = command(t, "bench", "--prefill", "3,5", "--decode", "2", "--depth", "4,8", "--repeat", "1", "--stream=false", "--svg", svg)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "decode"), out)
	requireDrawn(t, svg, "Decode", "Prefill", "1 sequence", "3", "4", "5", "8")

	_, err = command(t, "bench", "--prefill", "8,-1")
	require.ErrorContains(t, err, `--prefill is "8,-1"; expected`)
	_, err = command(t, "bench", "--prefill", "8,100000000")
	require.ErrorContains(t, err, "prefill of 100000000 tokens after 0 does not fit")
}

// TestBenchReport: on a CPU a report has speeds, ops and weights by type, and nothing of a GPU. It
// names neither the model's path nor the host.
func TestBenchReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "speed.md")
	args := []string{"bench", "--backend", "cpu", "--prefill", "4", "--decode", "2", "--repeat", "1", "--stream=false", "--report"}
	_, err := command(t, append(args, name)...)
	require.NoError(t, err)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	text := string(data)
	for _, says := range []string{"# Ringmaster speed report", "| program | ", "| kernels and system | cpu ", "| threads | ", "no expectation for this device",
		"prefill of 4 tokens", "decode of 2 tokens", "by the host's clock", "Embed token_embd", "(outside the ops)"} {
		require.Contains(t, text, says)
	}
	require.NotContains(t, text, "dispatches")
	require.NotContains(t, text, filepath.Dir(name))
	require.NotContains(t, text, "NaN")
	_, err = command(t, append(args, name, "--profile")...)
	require.ErrorContains(t, err, "leave out --profile")
	_, err = command(t, "bench", "--prefill", "0", "--decode", "0", "--report", name)
	require.ErrorContains(t, err, "nothing to measure")
	_, err = command(t, append(args, filepath.Join(name, "below"))...)
	require.ErrorContains(t, err, "--report")
}

// TestBenchDrafts: steps with drafts are compared with those without.
func TestBenchDrafts(t *testing.T) {
	args := []string{"bench", "--prefill", "0", "--decode", "4", "--repeat", "1", "--stream=false", "--drafts"}
	out, err := command(t, append(args, "0,2")...)
	require.NoError(t, err)
	require.Contains(t, out, ", 2 wrong drafts")
	require.Contains(t, out, "a decode step of 1 sequence by drafts of each, ms, and the ratio to the first:")
	out, err = command(t, append(args, "3", "--json")...)
	require.NoError(t, err)
	require.Contains(t, out, `"drafts":3`)
	_, err = command(t, append(args, "65")...)
	require.ErrorContains(t, err, "--drafts")
	_, err = command(t, append(args, "9", "--max-batch", "8")...)
	require.ErrorContains(t, err, "--drafts: a step of 1 sequence with 9 drafts each has 10 rows; --max-batch allows 8")
}

// TestBenchSnapshot checks that a sequence is saved and restored.
func TestBenchSnapshot(t *testing.T) {
	args := []string{"bench", "--prefill", "0", "--decode", "0", "--repeat", "2", "--snapshot"}
	out, err := command(t, append(args, "300")...)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^snapshot   300 tokens  [\d.]+ [KM]iB, saved at [\d.]+ GB/s, restored at [\d.]+ GB/s \(median of 2\)$`, out)
	_, err = command(t, append(args, "100000000")...)
	require.ErrorContains(t, err, "--snapshot: 100000000 tokens do not fit the context")
	_, err = command(t, append(args, "-1")...)
	require.ErrorContains(t, err, `--snapshot is "-1"; expected`)
}

// TestBenchState: the tokens before the decode are evaluated once and then taken from the
// file, also by another number of threads; what is not their state is refused.
func TestBenchState(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	args := []string{"bench", "--prefill", "0", "--decode", "40", "--repeat", "2", "--stream=false", "--json", "--state", state}
	run := func(more ...string) (bench.Measurement, error) {
		out, err := command(t, append(args, more...)...)
		if err != nil {
			return bench.Measurement{}, err
		}
		return benchLines(t, out)[0], nil
	}
	built, err := run("--depth", "300", "--threads", "2")
	require.NoError(t, err)
	before, err := os.Stat(state)
	require.NoError(t, err)
	taken, err := run("--depth", "300", "--threads", "1")
	require.NoError(t, err)
	require.Equal(t, built.BytesPerToken, taken.BytesPerToken, "the same experts are chosen")
	require.Equal(t, 300, taken.Depth)
	after, err := os.Stat(state)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the file is not written again")
	left, err := filepath.Glob(state + "*")
	require.NoError(t, err)
	require.Equal(t, []string{state}, left)

	_, err = run("--depth", "200")
	require.ErrorContains(t, err, state+": it has 300 tokens, --depth asks for 200")
	_, err = run("--depth", "300,400")
	require.ErrorContains(t, err, "--state keeps one sequence; give one --depth")
	_, err = run("--depth", "300", "--sequences", "2")
	require.ErrorContains(t, err, "--state keeps one sequence of one host")
	_, err = run("--distributed", "--world-size", "2", "--coordinator", "127.0.0.1:1")
	require.ErrorContains(t, err, "--state keeps one sequence of one host")
	require.NoError(t, os.Truncate(state, before.Size()/2))
	_, err = run("--depth", "300")
	require.ErrorContains(t, err, "--state "+state)
	_, err = run("--depth", "300", "--state", filepath.Join(state, "x"))
	require.ErrorContains(t, err, "--state")
}

// TestBenchBytes checks that the bytes per token do not depend on how many tokens
// are measured, and that sequences in one step share all weights but the experts.
func TestBenchBytes(t *testing.T) {
	read := func(args ...string) int64 {
		out, err := command(t, append([]string{"bench", "--prefill", "0", "--repeat", "1", "--stream=false", "--json"}, args...)...)
		require.NoError(t, err)
		all := benchLines(t, out)
		require.Len(t, all, 1)
		return all[0].BytesPerToken
	}
	one := read("--decode", "2")
	require.Equal(t, one, read("--decode", "5", "--profile"))
	two := read("--decode", "2", "--sequences", "2")
	require.Less(t, two, one)
	require.Greater(t, two, one/2)
}

// TestBenchTurns: numbers of sequences and precisions of activations take turns in one run,
// whose tables compare the steps and, with --profile, their ops.
func TestBenchTurns(t *testing.T) {
	args := []string{"bench", "--prefill", "3", "--decode", "2", "--repeat", "2", "--threads", "1", "--stream=false", "--backend", "cpu", "--activations", "15,8"}
	out, err := command(t, append(args, "--sequences", "1,3", "--profile")...)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^prefill      3 tokens, 15-bit activations  1 threads`, out)
	require.Regexp(t, `(?m)^decode       2 tokens after 128, 3 sequences, 8-bit activations  1 threads`, out)
	for _, head := range []string{"a prefill of 3 tokens by bits of activations", "a decode step of 1 sequence by bits of activations", "a decode step of 3 sequences by bits of activations"} {
		require.Regexp(t, head+`, ms, and the ratio to the first:\n +15 +8 +8/15 +op\n +[\d.]+ +[\d.]+ +[\d.]+ +\(all\)\n`, out)
	}
	for _, bits := range []string{"15", "8"} {
		require.Regexp(t, `a decode step by sequences, `+bits+`-bit activations, ms, .*\n +1 +3 +3/1 +op\n.*\(all\)\n`, out)
	}
	require.Regexp(t, ` [\d.]+ +[\d.]+ +[\d.]+ Embed token_embd`, out)

	out, err = command(t, append(args, "--sequences", "1,3", "--json")...)
	require.NoError(t, err)
	require.Equal(t, 6+5, strings.Count(out, "\n"), "measurements and comparisons")
	bytes := map[int]int64{}
	var compared []bench.Comparison
	for line := range strings.Lines(out) {
		var m bench.Measurement
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if m.What != "comparison" {
			require.Len(t, m.Seconds, 2)
			require.Contains(t, []int{15, 8}, m.Activations)
			if m.What == "decode" && m.Activations == 15 {
				bytes[m.Sequences] = m.BytesPerToken
			}
			continue
		}
		var c bench.Comparison
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		compared = append(compared, c)
	}
	require.Less(t, bytes[3], bytes[1], "sequences of a step share weights")
	require.Len(t, compared, 5)
	for i, by := range []string{"activations", "sequences", "sequences", "activations", "activations"} {
		c := compared[i]
		require.Equal(t, by, c.By)
		require.Equal(t, map[string][]int{"activations": {15, 8}, "sequences": {1, 3}}[by], c.Values)
		require.Len(t, c.Rows, 1, "without --profile only the step")
		require.Equal(t, []float64{1, c.Rows[0].Seconds[1] / c.Rows[0].Seconds[0]}, c.Rows[0].Ratios)
	}

	out, err = command(t, "bench", "--prefill", "0", "--decode", "2", "--repeat", "1", "--stream=false", "--sequences", "2", "--activations", "8")
	require.NoError(t, err)
	require.NotContains(t, out, "ratio to the first")

	_, err = command(t, append(args, "--distributed", "--world-size", "2", "--coordinator", "127.0.0.1:1")...)
	requireRefused(t, err, "--activations: several precisions are measured on one host")
	_, err = command(t, append(args, "--state", filepath.Join(t.TempDir(), "state"))...)
	requireRefused(t, err, "--state keeps one sequence of one host in one precision")
	_, err = command(t, "bench", "--activations", "15,7")
	requireRefused(t, err, "--activations", "15 or 8")
}

// requireExchanges checks that the exchanges of a rank add up to what its layers and it as a
// whole count.
func requireExchanges(t *testing.T, r bench.RankTimes) {
	t.Helper()
	var whole bench.RankTimes
	var sum []bench.ExchangeTime
	for _, l := range r.Layers {
		require.NotEmpty(t, l.By)
		sum = bench.AddExchanges(sum, l.By)
	}
	require.Equal(t, len(bench.AddExchanges(sum, r.Head)), len(r.By))
	for _, x := range sum {
		require.Positive(t, x.Compute)
		whole.Exchanges, whole.Sent = whole.Exchanges+x.Count, whole.Sent+x.Sent
		whole.Compute, whole.Waiting, whole.Wire = whole.Compute+x.Compute, whole.Waiting+x.Waiting, whole.Wire+x.Wire
	}
	require.Equal(t, r.Exchanges, whole.Exchanges)
	require.Equal(t, r.Sent, whole.Sent)
	require.InDelta(t, r.Waiting, whole.Waiting, 1e-6)
	require.InDelta(t, r.Wire, whole.Wire, 1e-6)
	require.LessOrEqual(t, whole.Compute, r.Seconds)
}

// TestBenchOnRanks checks that rank 0 of two reports its ops, fewer bytes per
// token than one rank alone, and no bandwidth of memory that both may use.
func TestBenchOnRanks(t *testing.T) {
	testenv.Need(t, testenv.Full, "bench on ranks")
	args := []string{"bench", "--prefill", "0", "--decode", "2", "--repeat", "1"}
	alone, err := command(t, append(args, "--stream=false", "--json")...)
	require.NoError(t, err)
	run := func(more ...string) string {
		at := testenv.LoopbackAddr(t)
		follower := rank(t, t.Context(), at, 1, 2, "serve")
		out, err := command(t, append(append(args, "--distributed", "--coordinator", at, "--rank", "0", "--world-size", "2",
			"--threads", "1", "--verify-model=false"), more...)...)
		require.NoError(t, err)
		require.NoError(t, await(t, follower))
		return out
	}
	// On a busy host auto may choose stages, whose layers exchange nothing.
	all := benchLines(t, run("--json", "--share", "all"))
	require.Len(t, all, 1)
	require.Len(t, all[0].Ranks, 2)
	require.Positive(t, all[0].BytesPerToken)
	require.Less(t, all[0].BytesPerToken, benchLines(t, alone)[0].BytesPerToken)
	require.Zero(t, all[0].StreamGBs)
	for _, r := range all[0].Ranks {
		requireExchanges(t, r)
	}
	require.Contains(t, run("--profile"), "ExpertDown")
	for share, purposes := range map[string][]string{"experts": {"experts"}, "all": {"attention", "experts", "output head"}} {
		text := run("--layers", "--share", share)
		for _, p := range purposes {
			// Once of all layers, then in each; the head has no layer.
			require.Greater(t, strings.Count(text, p+", "), 1+1, "%s of\n%s", p, text)
		}
	}
}
