package bench

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpectations: a chip has the expectation of its own name alone, and a value is within its
// range, above or below it, with the source.
func TestExpectations(t *testing.T) {
	require.Nil(t, macOf("metal (Apple M3)", 0))
	require.Nil(t, macOf("metal (Apple M4 Max Pro)", 0))
	require.Nil(t, macOf("cpu avx512", 0))
	require.Nil(t, macOf("metal (Apple M4 Max)", 32), "with less bandwidth")
	require.NotNil(t, macOf("metal (Apple M3 Ultra)", 60))
	m := macOf("metal (Apple M4 Max)", 40)
	require.Equal(t, "Apple M4 Max", m.name)
	number := func(v float64) string { return fmt.Sprint(v) }
	e := expectation{m.decode, sourceOf}
	for value, want := range map[float64]string{20: "26 to 33: **below**, " + sourceOf, 30: "26 to 33: within, " + sourceOf, 40: "26 to 33: above, " + sourceOf} {
		require.Equal(t, want, e.text(value, number))
	}
	require.Equal(t, "no expectation", expectation{source: sourceOf}.text(1, number))
}

// TestTypesOf: the types of an op are those of its weights, each once.
func TestTypesOf(t *testing.T) {
	for name, want := range map[string]string{
		"MatMul attn_q_a:Q8_0": "Q8_0", "MatMul attn_q_a:Q8_0, attn_kv_a:F16, other:Q8_0": "F16+Q8_0",
		"ExpertGateUp ffn_gate_exps:IQ2_XXS, ffn_up_exps:IQ2_XXS": "IQ2_XXS", "Add": "", "RMSNorm": "",
	} {
		require.Equal(t, want, typesOf(name), name)
	}
}

// TestCores reads what ioreg is known to print (not from a Mac of ours).
func TestCores(t *testing.T) {
	require.Equal(t, 60, coresIn("+-o AGXAcceleratorG15X  <class AGXAcceleratorG15X>\n    {\n      \"gpu-core-count\" = 60\n      \"model\" = \"Apple M3 Ultra\"\n    }\n"))
	require.Zero(t, coresIn(""))
}
