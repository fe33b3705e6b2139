//go:build cgo && (linux || darwin)

package rdma

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/grouptest"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/plan"
	"ringmaster/distributed/rdma/verbs"
	"ringmaster/internal/testenv"
)

// TestContract runs the suite for all transports over meshes and rings, with
// one to three rails and both kinds of queue pairs.
func TestContract(t *testing.T) {
	for _, c := range []struct {
		name  string
		ring  bool
		rails int // 0: pairs have different numbers
		words string
		ranks []int // the ranks that take part
		level testenv.Level
		// The calls of verbs are made in helper processes.
		helped bool
	}{
		{"mesh, 1 rail, UC", false, 1, "", []int{2, 3, 4}, testenv.Fast, false},
		{"ring, 2 rails, UC, macOS 26.2", true, 2, "profile=26.2", []int{2, 3, 4}, testenv.Full, false},
		{"mesh, 1 rail, UC, macOS 27.0", false, 1, "profile=27.0", []int{2, 3, 4}, testenv.Full, false},
		{"mesh, 1 rail, UC that drops", false, 1, drops, []int{2, 3, 4}, testenv.Full, false},
		{"ring, 2 rails, UC that drops, late, poison", true, 2, drops + " late=1 poison=1", []int{2, 3, 4}, testenv.Exhaustive, false},
		{"mesh, 1 rail, RC", false, 1, "link=eth", []int{2, 3}, testenv.Full, false},
		{"ring, 1 rail, UC", true, 1, "", []int{4, 5}, testenv.Exhaustive, false},
		{"ring, 2 rails, UC", true, 2, "", []int{2, 3, 4}, testenv.Full, false},
		{"ring, 3 rails, RC, late, poison", true, 3, "link=eth late=1 poison=1", []int{2, 4}, testenv.Exhaustive, false},
		{"mesh, 2 rails, UC, late, poison", false, 2, "late=1 poison=1", []int{3}, testenv.Exhaustive, false},
		{"mesh, 1 to 3 rails, UC, late, poison", false, 0, "late=1 poison=1", []int{3, 4}, testenv.Full, false},
		{"mesh, 1 rail, UC, helper processes", false, 1, "", []int{2, 3}, testenv.Full, true},
		{"ring, 2 rails, UC that drops, late, poison, helper processes", true, 2, drops + " late=1 poison=1", []int{2, 3}, testenv.Exhaustive, true},
		{"ring, 2 rails, RC, helper processes", true, 2, "link=eth", []int{2, 4}, testenv.Exhaustive, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.Need(t, c.level, "the contract on this shape of cables")
			grouptest.Run(t, grouptest.Here(func(t *testing.T, s grouptest.Setup) []*distributed.Group {
				if s.Size == 1 {
					return []*distributed.Group{distributed.Local()}
				}
				if s.Size > 3 {
					testenv.Need(t, testenv.Full, "the contract on more than three ranks")
				}
				wanted := false
				for _, n := range c.ranks {
					wanted = wanted || n == s.Size
				}
				if !wanted && s.Size > 3 {
					t.Skip("NOT APPLICABLE: another case has as many ranks")
				}
				w := meshOf(s.Size, c.rails, c.words)
				switch {
				case c.rails == 0:
					w = unevenMesh(s.Size, c.words)
				case c.ring:
					w = ringOf(s.Size, c.rails, c.words)
				}
				if c.helped {
					processes(t)
				}
				return group(t, w, s.Size, func(_ int, o *rdma.Options, l *distributed.Link) {
					o.Tuning.Cap = -1 // messages of one frame, so that even small operations need many
					if s.Size == 3 {
						o.Tuning.Cap = 2
					}
					if strings.HasPrefix(c.words, drops) {
						o.Tuning.Type = verbs.UC
					}
					o.Tuning.OneRail = -1
					if s.Scatter {
						o.Tuning.Force = plan.TwoShot
					}
					if s.Whole {
						o.Tuning.Force = plan.OneShot
					}
					o.Tuning.Mesh = !c.ring
					l.OpTimeout = s.OpTimeout
					if c.helped {
						o.Verbs = rdma.Helper
					}
				}).groups
			}))
		})
	}
}

// Thunderbolt is identified by its link layer, or by the name of the device if
// the library reports none. It gets unreliable queue pairs, because it has no
// others.
func TestLinkLayer(t *testing.T) {
	for words, apple := range map[string]bool{"link_layer=100": true, "link_layer=0": false} {
		for _, names := range []bool{false, true} {
			w := meshOf(2, 1, words)
			if names {
				w.script = strings.NewReplacer(device(0, 1, 0), "rdma_en2", device(1, 0, 0), "rdma_en3").Replace(w.script)
				w.matrix[0][1][0], w.matrix[1][0][0] = "rdma_en2", "rdma_en3"
			}
			x := setup(t, w, 2, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			errs := x.connect(ctx)
			cancel()
			for r, err := range errs {
				if apple || names {
					require.NoError(t, err, "%s, rank %d", words, r)
					require.Contains(t, x.groups[r].Describe().Topology, "rails 1, UC,", words)
				} else {
					require.ErrorContains(t, err, "Thunderbolt supports only UC", "an unknown device is taken for one with reliable queue pairs")
				}
			}
		}
	}
}

// TestKind: what a group reports about itself.
func TestKind(t *testing.T) {
	x := group(t, ringOf(4, 2, "profile=26.3"), 4, nil)
	for _, g := range x.groups {
		if g.Kind() != "rdma" {
			t.Fatal(g.Kind())
		}
		m := g.Describe()
		require.Equal(t, "rdma ring [0 1 2 3] of 4 ranks, rails 2, UC, messages of up to 512 KiB, latency 6µs, 8.00 GB/s for each rail (ring: ranks 0 and 2 have no cable), verbs in this process", m.Topology)
	}
}
