//go:build unix

package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestHelper: a rank that helps another one with prompts changes no token, and its loss in a
// prompt, in an answer or between both costs none: rank 0 continues alone with the same tokens,
// until the helper is back. The cost of the ranks is measured, or their speeds are given. In the
// full form it suffers all faults in all phases.
func TestHelper(t *testing.T) {
	for _, share := range []string{"helper:1,3", "helper"} {
		t.Run(share, func(t *testing.T) {
			if share == "helper" {
				testenv.Need(t, testenv.Full, "measured ranks")
			}
			t.Parallel()
			b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Flags: append([]string{"--share", share, "--cache-entries", "0"}, continueFlags...)})
			require.NoError(t, b.Start(0))
			require.NoError(t, b.Start(1))
			b.ready()
			b.requireAnswer(longPrompt)
			if share != "helper" { // else prompts may stay on rank 0
				n, err := b.Client.Metric(b.ctx, `ringmaster_rank_tokens_total{rank="1"}`)
				require.NoError(t, err)
				require.Greater(t, n, 1000.0, "tokens that rank 1 has helped with")
			}
			for i, f := range faults {
				for j, p := range phases {
					if f.net || !testenv.At(testenv.Full) && (f.name != "killed" || p.name == "idle") {
						continue
					}
					if !t.Run(f.name+", "+p.name, func(t *testing.T) { b.on(t).outlive(f, p, 1) }) {
						t.Fatalf("fault %d in phase %d: the cluster is in an unknown state", i, j)
					}
				}
			}
		})
	}
}
