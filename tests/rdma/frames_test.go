//go:build cgo && (linux || darwin)

package rdma

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
	"ringmaster/distributed/rdma"
	"ringmaster/distributed/rdma/verbs"
)

// TestLongestMessage: the bring-up finds out how long messages may be, whatever
// happens to longer ones, and reports it on every rank. Operations are right. Each
// device registers memory once.
func TestLongestMessage(t *testing.T) {
	for _, c := range []struct {
		name, words, faults string
		longest             string // KiB
		patience            time.Duration
	}{
		{"26.2", "profile=26.2", "", "4", 0},
		{"26.3", "profile=26.3", "", "512", 0},
		{"27.0", "profile=27.0", "", "4", 0},
		{"27.0, three queue pairs, late", "profile=27.0 late=1 poison=1", "", "4", 0},
		{"longer ones are lost", "profile=26.2", "fault on=send do=drop above=4096 count=all\n", "4", time.Second},
		{"up to 16 KiB in one direction", "profile=26.3", "fault device=r0to1_0 on=send do=drop above=16384 count=all\n", "16", time.Second},
		{"up to 64 KiB, with an error", "profile=26.3", "fault device=r1to0_0 on=recv do=status:1 above=65536 count=all\n", "64", 0},
		{"all but the longest", "profile=26.3", "fault device=r1to0_0 on=recv do=status:1 above=524288 count=all\n", "512", 0},
		{"few frames granted", "profile=26.2 grant_send=12 grant_recv=12", "", "4", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := meshOf(3, 1, c.words)
			w.script += c.faults
			x := group(t, w, 3, func(_ int, o *rdma.Options, l *distributed.Link) {
				if c.patience > 0 {
					o.Tuning.TokenTimeout = c.patience
				}
				l.OpTimeout = 20 * time.Second
			})
			for _, g := range x.groups {
				d := g.Describe()
				require.Contains(t, d.Topology, "messages of up to "+c.longest+" KiB")
				limited := c.longest != "512" || c.faults != ""
				require.Equal(t, limited, strings.Contains(strings.Join(d.Notes, "\n"), "messages of more than "+c.longest+" KiB do not arrive"), "%v", d.Notes)
			}
			sums(t, x)
			for _, op := range operations {
				x.all(t, func(g *distributed.Group) error { return op.do(t.Context(), g) })
			}
			require.Equal(t, 6, x.fabric.Count("mrs"))
			require.Equal(t, 6, x.fabric.Count("qps"))
			require.Zero(t, x.fabric.Count("empty"))
		})
	}
}

// TestMemoryIsRegisteredOnce: a bring-up with many proofs (rails to find, messages
// too long) registers the memory of each device once, and never has more than one
// queue pair on it.
func TestMemoryIsRegisteredOnce(t *testing.T) {
	for _, profile := range []string{"26.2", "27.0"} {
		w := meshOf(2, 2, "profile="+profile+" max_qp=1")
		w.script = strings.ReplaceAll(w.script, "cable r0to1_0 r1to0_0", "cable r0to1_0 r1to0_1")
		w.script = strings.ReplaceAll(w.script, "cable r0to1_1 r1to0_1", "cable r0to1_1 r1to0_0") // crossed
		for r := range 2 {
			for k := range 2 { // the second registration fails; rights are tried in one or two calls
				w.script += fmt.Sprintf("fault device=%s on=reg_mr do=errno:12 nth=2 count=all\n", device(r, 1-r, k))
			}
		}
		x := group(t, w, 2, nil)
		require.Contains(t, strings.Join(x.groups[0].Describe().Notes, "\n"), "crossed")
		require.Contains(t, x.groups[0].Describe().Topology, "rails 2, UC, messages of up to 4 KiB")
		sums(t, x)
	}
}

// TestUnreliableOnly: Thunderbolt has only unreliable queue pairs.
func TestUnreliableOnly(t *testing.T) {
	x := setup(t, meshOf(2, 1, ""), 2, func(_ int, o *rdma.Options, _ *distributed.Link) { o.Tuning.Type = verbs.RC })
	x.refused(t, distributed.ErrConfig, "Thunderbolt supports only UC queue pairs, not RC")
}
