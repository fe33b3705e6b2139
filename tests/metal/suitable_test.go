//go:build metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackendsOfAMac: on an Intel Mac auto computes on the CPU, says so, and gives the
// CPU's logits; metal is an error with the cure.
func TestBackendsOfAMac(t *testing.T) {
	p := newProgram(t)
	want, log, err := p.logits(1, "--backend", "cpu")
	require.NoError(t, err, log)
	p.environments = []string{"MTLSIM_GPU=intel"}
	got, log, err := p.logits(1, "--backend", "auto")
	require.NoError(t, err, log)
	require.Equal(t, want, got)
	require.Contains(t, log, "computing on the CPU")
	require.Contains(t, log, "Intel(R) UHD Graphics 630")
	_, log, err = p.logits(1, "--backend", "metal")
	require.Error(t, err)
	require.Contains(t, log, "Intel(R) UHD Graphics 630")
	require.Contains(t, log, "use --backend cpu")
}

// TestMemoryOfTheGPU: a model that the host's memory could hold but the GPU's working
// set cannot is refused, and the limit to raise is named.
func TestMemoryOfTheGPU(t *testing.T) {
	p := newProgram(t)
	p.environments = []string{"MTLSIM_WORKING_SET=1048576"}
	_, log, err := p.logits(1, "--backend", "metal")
	require.Error(t, err)
	require.Contains(t, log, "1.0 MiB")
	require.Contains(t, log, "iogpu.wired_limit_mb")
}
