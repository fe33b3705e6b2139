//go:build metalsim

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/gguf"
	"ringmaster/kernels"
	"ringmaster/kernels/kerneltest"
	"ringmaster/metal"
)

// TestTypes: the device computes all types of weights right, in every kind of op.
func TestTypes(t *testing.T) {
	b := open(t)
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, kernels.Prepare(b, kernels.Uses{Rows: kerneltest.Types, Products: kerneltest.Types, Experts: kerneltest.Types}))
	made := b.Pipelines()
	require.NoError(t, kernels.Prepare(b, kernels.Uses{Products: kerneltest.Types[:3]}))
	require.Equal(t, made, b.Pipelines())
}

// TestWrongType: a device that computes one type wrongly, of few tokens or of many, is told
// from one that computes it right, with its name, the type and what differs. Other types of the
// device are fine. IQ4_NL has blocks of the size of Q4_0.
func TestWrongType(t *testing.T) {
	one := []gguf.Type{gguf.Q4_0}
	for kernel, c := range map[string]struct {
		by, says string
		uses     kernels.Uses
	}{
		"embed_q4_0":       {"embed_iq4_nl", "Embed: row 0", kernels.Uses{Rows: one}},
		"gemv1_q4_0":       {"gemv1_iq4_nl", "MatMul of 1 tokens", kernels.Uses{Products: one}},
		"gemm_q4_0":        {"gemm_iq4_nl", "MatMul of 16 tokens", kernels.Uses{Products: one}},
		"expert_gemv_q4_0": {"expert_gemv_iq4_nl", "ExpertDown of 1 tokens", kernels.Uses{Experts: one}},
	} {
		b, err := metal.OpenSwapped(kernel, c.by)
		require.NoError(t, err)
		require.NoError(t, kernels.Prepare(b, kernels.Uses{Products: []gguf.Type{gguf.Q8_0}}))
		err = kernels.Prepare(b, c.uses)
		var wrong *kernels.WrongTypeError
		require.ErrorAs(t, err, &wrong, kernel)
		require.Equal(t, gguf.Q4_0, wrong.Type)
		for _, says := range []string{b.Name(), "Q4_0", c.says, "in place of", "--backend cpu"} {
			require.ErrorContains(t, err, says, kernel)
		}
		require.NoError(t, b.Flush(), "the device has not failed")
		require.NoError(t, b.Close())
	}
}
