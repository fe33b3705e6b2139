//go:build metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/kernels/kerneltest"
	"ringmaster/metal"
)

// TestUnsuitable: a GPU or a system that cannot run the kernels is refused at once,
// with its name and what to do, as an error that lets the caller take another backend.
func TestUnsuitable(t *testing.T) {
	for name, c := range map[string]struct {
		variable, value string
		says            []string
	}{
		"Intel":       {"MTLSIM_GPU", "intel", []string{"Intel(R) UHD Graphics 630", "Apple7", "--backend cpu"}},
		"paravirtual": {"MTLSIM_GPU", "paravirtual", []string{"Apple Paravirtual device", "Apple7", "--backend cpu"}},
		"old system":  {"MTLSIM_MACOS", "13.7", []string{"macOS 13.7", "macOS 14", "--backend cpu"}},
		"no device":   {"MTLSIM_NO_DEVICE", "1", []string{"no Metal device", "--backend cpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			b, err := metal.Open(metal.Options{})
			require.Nil(t, b)
			var unsuitable *metal.UnsuitableError
			require.ErrorAs(t, err, &unsuitable)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

// TestBeforeResidencySets: macOS 14 has neither residency sets nor math modes.
func TestBeforeResidencySets(t *testing.T) {
	testenv.Need(t, testenv.Full, "compiling all kernels a second time, for macOS 14")
	t.Setenv("MTLSIM_MACOS", "14.5")
	b := open(t)
	x := kerneltest.OnDevice(t, b, []float32{1, 2, 3})
	b.Add(x, x, x, 3)
	require.NoError(t, b.Flush())
	require.Equal(t, []float32{2, 4, 6}, x)
	require.False(t, b.Renewed())
	require.NoError(t, b.Close())
}

// TestNames: a failure names its op where Apple's validation is on, and otherwise the first and
// the last op of its command buffer, because names cost time.
func TestNames(t *testing.T) {
	for validation, c := range map[string]struct{ says, not string }{"0": {"Add to Clear", " in Add"}, "1": {" in Add", "no op"}} {
		t.Setenv("MTL_DEBUG_LAYER", validation)
		t.Setenv("MTLSIM_FAIL", "Add:1:1"+validation) // a rule of its own
		b := open(t)
		x := kerneltest.OnDevice(t, b, []float32{1, 2})
		b.Add(x[:1], x[:1], x[:1], 1)
		b.Clear(x[:1], 1)
		err := b.Flush()
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, err.Error(), c.not)
		require.NoError(t, b.Close())
	}
}

// TestFailuresAreExplained: the errors of the driver that have a known cause say it.
func TestFailuresAreExplained(t *testing.T) {
	for rule, says := range map[string][]string{
		":1:2":  {"watchdog", "5 s", "--max-batch"},
		":1:14": {"display", "--max-batch"},
		":1:8":  {"iogpu.wired_limit_mb"},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Setenv("MTLSIM_FAIL", "Add"+rule)
			b := open(t)
			x := kerneltest.OnDevice(t, b, []float32{1})
			b.Add(x, x, x, 1)
			err := b.Flush()
			for _, s := range says {
				require.ErrorContains(t, err, s)
			}
			require.NoError(t, b.Close())
		})
	}
}
