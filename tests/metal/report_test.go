//go:build metalsim

package metal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/bench"
	"ringmaster/internal/host"
	"ringmaster/kernels/profile"
	"ringmaster/metal"
	"ringmaster/model/decoder"
	"ringmaster/tests/whole"
)

// TestReport: a report on a GPU has the device, what a step asks of it, how long it computes and
// the host waits, the rate of each type of weights by the GPU's clock, and every type compared
// with the CPU. An op's time on the GPU is at most the op's.
func TestReport(t *testing.T) {
	b := openMetal(t)
	ops := profile.NewSwitch(b, time.Now)
	name := filepath.Join(t.TempDir(), "speed.md")
	o := bench.Options{Prefill: []int{20}, Decode: 3, Depths: []int{8}, Sequences: []int{1}, Repeat: 2, Report: name}
	m := whole.Open(t, small(t), ops, decoder.OpenOptions{MaxTokens: 64})
	before := b.Counts()
	target := bench.Target{Model: m, Profile: ops, GPU: b, Kernels: metal.Kernels(b), Memory: func() (host.Memory, bool) { return host.Memory{}, false }}
	var out bytes.Buffer
	require.NoError(t, bench.Run(t.Context(), &out, time.Now(), target, o))
	require.Greater(t, b.Counts().Dispatches, before.Dispatches)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	text := string(data)
	for _, says := range []string{
		"| device | " + b.Name() + " |", "| kernels and system | metal (", "| largest buffer | ", "| pipelines made | ", "| model | deepseek4, 5 layers, vocabulary of 512 |",
		"no expectation for this device", "prefill of 20 tokens", "decode of 3 tokens", "| waits for the GPU | 1 |", "Weights that ops read, by the GPU's clock:",
		"on GPU", "ExpertGateUp ffn_gate_exps", "* The device computes 24 types as the CPU does.",
	} {
		require.Contains(t, text, says)
	}
	// Of a decode: as many dispatches as one step has, and no more time on the GPU than in the step.
	steps := regexp.MustCompile(`\| dispatches \| (\d+) \|`).FindAllStringSubmatch(text, -1)
	require.Len(t, steps, 2, text)
	n := b.Counts()
	require.NoError(t, stepOf(m, 0, 1))
	n = b.Counts().Minus(n)
	require.Equal(t, strconv.Itoa(n.Dispatches), steps[1][1])
	for _, share := range regexp.MustCompile(`\| time on the GPU \| [\d.]+ ms \| (\d+) % of the step`).FindAllStringSubmatch(text, -1) {
		percent, err := strconv.Atoi(share[1])
		require.NoError(t, err)
		require.Positive(t, percent)
		require.LessOrEqual(t, percent, 100)
	}
	require.NotContains(t, text, filepath.Dir(name))
	if own, err := os.Hostname(); err == nil && len(own) > 3 {
		require.NotContains(t, text, own)
	}
}
