package node

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/kernels/cpu"
	"ringmaster/model/synthetic"
	"ringmaster/parallel"
	"ringmaster/replica"
)

// bestLevel is the instruction set of --simd auto.
func bestLevel(t *testing.T) cpu.Level {
	level, err := cpu.ParseLevel("auto")
	require.NoError(t, err)
	return level
}

// fingerprint opens the model at path as serve does, and gives
// its system_fingerprint on one host.
func fingerprint(t *testing.T, path string, reduce parallel.Reduce) string {
	n := New(Options{File: File{Path: path}, Context: 256, Threads: 1, MaxTokens: 16, Sequences: 1, Reduce: reduce, Compute: Compute{Backend: CPUBackend}, Level: bestLevel(t), Plans: io.Discard})
	require.NoError(t, n.Start(t.Context()))
	defer n.Close()
	return n.Fingerprint()
}

// TestSystemFingerprintOfModels: every model has its own, even among models that
// differ in weights only; a restart keeps it; and what decides the bits of the
// logits changes it.
func TestSystemFingerprintOfModels(t *testing.T) {
	dir := t.TempDir()
	tiny := func(name string, seed uint64) string {
		c, err := synthetic.Preset("tiny")
		require.NoError(t, err)
		c.Seed = seed
		path := filepath.Join(dir, name)
		_, err = c.WriteFile(path)
		require.NoError(t, err)
		return path
	}
	one, two := tiny("one.gguf", 1), tiny("two.gguf", 2)
	first := fingerprint(t, one, parallel.Sum)
	require.Regexp(t, `^fp_[0-9a-f]{16}$`, first)
	require.Equal(t, first, fingerprint(t, one, parallel.Sum), "after a restart")
	require.Equal(t, first, fingerprint(t, tiny("copy.gguf", 1), parallel.Sum), "the same model elsewhere")
	seen := map[string]bool{first: true}
	for what, other := range map[string]string{
		"another model":      fingerprint(t, two, parallel.Sum),
		"the built-in model": fingerprint(t, "", parallel.Sum),
		"another reduce":     fingerprint(t, one, parallel.Exact),
	} {
		require.False(t, seen[other], what)
		seen[other] = true
	}
}

// TestSystemFingerprintOfGroups: with sum the shares decide the bits, with exact nothing of the group does.
func TestSystemFingerprintOfGroups(t *testing.T) {
	of := func(reduce parallel.Reduce, kernels string, ends ...int) string {
		s := replica.Settings{Context: 256, MaxTokens: 16, Reduce: reduce}
		start := 0
		for _, end := range ends {
			s.Placement = append(s.Placement, parallel.Part{Experts: parallel.Range{Start: start, End: end}, Weight: 1})
			start = end
		}
		return fingerprintOf("model", "weights", "build", kernels, reduce, s)
	}
	alone := fingerprintOf("model", "weights", "build", "cpu", parallel.Sum, replica.Settings{})
	require.Equal(t, alone, of(parallel.Sum, "cpu", 9), "a group of one rank")
	require.Equal(t, of(parallel.Sum, "cpu", 4, 9), of(parallel.Sum, "cpu", 4, 9))
	require.NotEqual(t, alone, of(parallel.Sum, "cpu", 4, 9))
	require.NotEqual(t, of(parallel.Sum, "cpu", 4, 9), of(parallel.Sum, "cpu", 5, 9))
	require.NotEqual(t, of(parallel.Sum, "cpu", 4, 9), of(parallel.Sum, "metal", 4, 9))

	exact := fingerprintOf("model", "weights", "build", "cpu", parallel.Exact, replica.Settings{})
	require.NotEqual(t, alone, exact)
	require.Equal(t, exact, of(parallel.Exact, "cpu", 4, 9))
	require.NotEqual(t, exact, fingerprintOf("model", "weights", "another build", "cpu", parallel.Exact, replica.Settings{}))
}
