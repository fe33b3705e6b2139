package cost_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel/cost"
)

// TestLineOfOtherTypes: a product of types that were not measured together has the line of the
// one with the most of them, and a product of none of them no line.
func TestLineOfOtherTypes(t *testing.T) {
	m := cost.Model{Ops: map[string]cost.Line{
		"MatMul F16+Q8_0": {Fixed: 1}, "MatMul Q4_K": {Fixed: 2}, "MatMulGrouped Q6_K": {Fixed: 3},
	}}
	for kind, want := range map[string]float64{"MatMul F16": 1, "MatMul F16+Q4_K+Q8_0": 1, "MatMul Q4_K": 2, "MatMul Q6_K": 0} {
		got, ok := m.Seconds(cost.Op{Kind: kind, Bytes: 1})
		require.Equal(t, want > 0, ok, kind)
		require.Equal(t, want, got, kind)
	}
}
