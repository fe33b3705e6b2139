//go:build unix

package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// TestStages: ranks with different layers answer as one rank does, alone in a stage and
// beside another one. When a rank is lost, the others take its layers and compute the running
// answers again from their tokens, with the same tokens; when it is back, once more. In the
// full form a third of the pairs of faults and phases strike, with -exhaustive all.
func TestStages(t *testing.T) {
	for _, x := range []struct {
		name   string
		ranks  int
		stages string
		share  string
		level  testenv.Level
	}{
		{"two ranks, two stages", 2, "2", "experts", testenv.Fast},
		{"three ranks, by layers", 3, "0-5:1,6-15:2", "all", testenv.Full},
		{"four ranks, three stages", 4, "3", "experts", testenv.Full},
	} {
		t.Run(x.name, func(t *testing.T) {
			testenv.Need(t, x.level, x.name)
			t.Parallel()
			b := newBed(t, harness.Options{Size: x.ranks, Model: model(t, slowModel),
				Flags: append([]string{"--stages", x.stages, "--share", x.share, "--reduce", "exact", "--cache-entries", "0"}, continueFlags...)})
			for r := range x.ranks {
				require.NoError(t, b.Start(r))
			}
			b.ready()
			b.requireAnswer(brief)
			// runs reports whether this form has fault i in phase j.
			runs := func(i, j int) bool {
				switch {
				case !testenv.At(testenv.Full):
					return faults[i].name == "killed" && phases[j].name == "decode"
				case testenv.At(testenv.Exhaustive):
					return true
				}
				return (i+j+x.ranks)%3 == 0
			}
			for i, f := range faults {
				for j, p := range phases {
					if f.net || !runs(i, j) {
						continue
					}
					victim := 1 + (i+j)%(x.ranks-1)
					if !t.Run(f.name+", "+p.name, func(t *testing.T) { b.on(t).outlive(f, p, victim) }) {
						return // the cluster is in an unknown state
					}
				}
			}
		})
	}
}
