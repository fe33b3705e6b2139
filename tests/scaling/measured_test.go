//go:build unix

package scaling

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/simulate"
	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

var (
	measured      = flag.Duration("measured", 0, "compare ringmaster simulate with a real group under load for so long at each of --measured-rates")
	measuredRates = flag.String("measured-rates", "0.3,0.6,0.85", "of the group's capacity, as the rates of bench give it")
	measuredRanks = flag.Int("measured-ranks", 1, "ranks of the group, all on this host, of one thread each")
	measuredModel = flag.String("measured-model", "", "the model's file; empty is the built-in model")
)

// The requests: alike, of one turn, with a prompt of their own.
const (
	measuredPrompt = 300
	measuredAnswer = 40
)

// TestAgainstAGroup measures with bench what steps of a real group take, puts the group
// under Poisson arrivals, and prints what its clients saw, what its own histograms say,
// and what simulate expects from the times of bench. It judges nothing: how far they are
// apart depends on the host. It only requires that every request was answered.
func TestAgainstAGroup(t *testing.T) {
	if *measured == 0 {
		t.Skip("NOT CHECKED: a simulation beside a real group under load, by -measured 60s")
	}
	ctx := testenv.Within(t, 20**measured+10*time.Minute)
	program := testenv.Program(t)
	o := harness.Options{Program: program, Size: *measuredRanks, Model: *measuredModel, Flags: []string{"--ctx", "1024", "--cache-entries", "0"}}
	if o.Size > 1 {
		o.Flags = append(o.Flags, "--share", "all")
	}
	bench := filepath.Join(t.TempDir(), "bench.json")
	rates := benchGroup(t, ctx, o, bench)
	for _, text := range strings.Split(*measuredRates, ",") {
		var part float64
		_, err := fmt.Sscan(text, &part)
		require.NoError(t, err)
		// A request keeps the group for its prefill and its share of steps of eight.
		capacity := 1 / (measuredPrompt/rates["prefill"] + measuredAnswer/rates["decode 8"])
		rate := part * capacity
		seen := underLoad(t, ctx, o, rate, *measured)
		simulated := simulated(t, ctx, program, bench, rate)
		t.Logf("%.0f %% of the capacity of %.2f requests/s: %.2f requests/s, %d measured in %v (%d simulated)", 100*part, capacity, rate, len(seen.first), *measured, simulated.Requests)
		line := func(what string, got []float64, server, want simulate.Quantiles) {
			q := func(p float64) float64 { return got[min(len(got)-1, int(p*float64(len(got))))] }
			t.Logf("%-16s clients p50 %6.1f ms p95 %6.1f p99 %6.1f | server p50 %6.1f p95 %6.1f p99 %6.1f | simulated p50 %6.1f p95 %6.1f p99 %6.1f | simulated by measured %.2f %.2f %.2f", what,
				1e3*q(.5), 1e3*q(.95), 1e3*q(.99), 1e3*server.P50, 1e3*server.P95, 1e3*server.P99, 1e3*want.P50, 1e3*want.P95, 1e3*want.P99,
				want.P50/q(.5), want.P95/q(.95), want.P99/q(.99))
		}
		line("first token", seen.first, seen.server["first"], simulated.FirstToken)
		line("between tokens", seen.between, seen.server["between"], simulated.Between)
	}
}

// benchGroup writes what bench measures of a group, and returns the rates in tokens a
// second.
func benchGroup(t *testing.T, ctx context.Context, o harness.Options, file string) map[string]float64 {
	rates := map[string]float64{}
	var all bytes.Buffer
	for _, flags := range [][]string{{"--prefill", "256", "--decode", "40"}, {"--prefill", "0", "--decode", "40", "--sequences", "2"},
		{"--prefill", "0", "--decode", "40", "--sequences", "4"}, {"--prefill", "0", "--decode", "40", "--sequences", "8"}} {
		b := o
		b.Flags = slices.DeleteFunc(slices.Clone(o.Flags), func(s string) bool { return s == "--cache-entries" || s == "0" })
		c, err := harness.NewCluster(b)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		for r := 1; r < o.Size; r++ {
			require.NoError(t, c.Start(r))
		}
		text := output(t, ctx, c.Args(0, append([]string{"bench", "--json"}, flags...)...)...)
		c.Close()
		all.Write(text)
		for line := range bytes.Lines(text) {
			var m struct {
				What         string
				N, Sequences int
				Seconds      []float64
			}
			require.NoError(t, json.Unmarshal(line, &m), "%s", line)
			slices.Sort(m.Seconds)
			name := m.What
			if name == "decode" {
				name = fmt.Sprint(name, " ", m.Sequences)
			}
			rates[name] = max(rates[name], float64(m.N*m.Sequences)/m.Seconds[len(m.Seconds)/2])
		}
	}
	require.NoError(t, os.WriteFile(file, all.Bytes(), 0o600))
	t.Logf("tokens a second by bench: %v", rates)
	return rates
}

// load is what was seen of a group under load, in seconds, ascending.
type load struct {
	first, between []float64
	server         map[string]simulate.Quantiles
}

// output runs a command and returns what it prints.
func output(t *testing.T, ctx context.Context, args ...string) []byte {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stderr = harness.CleanEnvironment(), &log
	text, err := cmd.Output()
	require.NoError(t, err, "%s", &log)
	return text
}

// underLoad asks a group at a rate, from a fresh start, for so long.
func underLoad(t *testing.T, ctx context.Context, o harness.Options, rate float64, d time.Duration) load {
	c, err := harness.NewCluster(o)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.StartAll(ctx), c.Logs())
	r := rand.New(rand.NewPCG(7, 7))
	prompt := func() []int32 {
		ids := make([]int32, measuredPrompt)
		for i := range ids {
			ids[i] = 100 + r.Int32N(300)
		}
		return ids
	}
	ask := func(prompt []int32) ([]float64, error) {
		var at []float64
		began := time.Now()
		a, err := c.Client.Complete(ctx, harness.Request{Prompt: prompt, MaxTokens: measuredAnswer, Top: 1, OnToken: func(n int) {
			for len(at) < n {
				at = append(at, time.Since(began).Seconds())
			}
		}})
		if err == nil && (a.Err != nil || len(at) != measuredAnswer) {
			err = fmt.Errorf("%d tokens: %+v", len(at), a.Err)
		}
		return at, err
	}
	_, err = ask(prompt()) // pages and threads
	require.NoError(t, err)
	var mu sync.Mutex
	var all sync.WaitGroup
	var out load
	next := time.Now()
	for end := next.Add(d); next.Before(end); {
		<-time.After(time.Until(next)) // the arrivals themselves, not a wait
		ids := prompt()
		all.Go(func() {
			at, err := ask(ids)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			out.first = append(out.first, at[0])
			for i := 1; i < len(at); i++ {
				out.between = append(out.between, at[i]-at[i-1])
			}
		})
		next = next.Add(time.Duration(r.ExpFloat64() / rate * 1e9))
	}
	all.Wait()
	require.NotEmpty(t, out.first)
	slices.Sort(out.first)
	slices.Sort(out.between)
	text, err := c.Client.Metrics(ctx)
	require.NoError(t, err)
	out.server = map[string]simulate.Quantiles{"first": histogram(t, text, "ringmaster_first_token_seconds"), "between": histogram(t, text, "ringmaster_token_seconds")}
	return out
}

// histogram is the quantiles of a histogram of /metrics, each the end of its bucket.
func histogram(t *testing.T, text, name string) (q simulate.Quantiles) {
	counts := map[float64]float64{}
	var total float64
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"_bucket{")
		if !ok {
			continue
		}
		_, rest, _ = strings.Cut(rest, `le="`)
		le, count, _ := strings.Cut(rest, `"} `)
		var n float64
		_, err := fmt.Sscan(count, &n)
		require.NoError(t, err, line)
		total = max(total, n)
		var end float64
		if _, err := fmt.Sscan(le, &end); err == nil && le != "+Inf" {
			counts[end] += n
		}
	}
	require.Positive(t, total, name)
	ends := make([]float64, 0, len(counts))
	for end := range counts {
		ends = append(ends, end)
	}
	slices.Sort(ends)
	at := func(p float64) float64 {
		for _, end := range ends {
			if counts[end] >= p*total {
				return end
			}
		}
		return ends[len(ends)-1]
	}
	return simulate.Quantiles{P50: at(.5), P95: at(.95), P99: at(.99)}
}

// simulated is what simulate expects of the same requests, in 20 times the time.
func simulated(t *testing.T, ctx context.Context, program, bench string, rate float64) (r simulate.Report) {
	text := output(t, ctx, program, "simulate", "--bench", bench, "--rate", fmt.Sprint(rate), "--turns", "1",
		"--prompt", fmt.Sprint(measuredPrompt), "--answer", fmt.Sprint(measuredAnswer), "--spread", "0", "--cache-entries", "0", "--ctx", "1024", "--keyed", "0", "--bound", "0",
		"--warmup", "10s", "--duration", (20 * *measured).String(), "--json")
	require.NoError(t, json.Unmarshal(text, &r), "%s", text)
	return r
}
