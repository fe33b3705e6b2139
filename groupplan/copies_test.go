package groupplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"ringmaster/parallel"
	"ringmaster/parallel/assign"
)

// TestImbalance simulates groups with no copies, of a quarter of the experts, and of all,
// for uniform routing and for routing with favourites. With all copied the busiest rank
// takes no longer than whole experts allow. -v prints the table of
// docs/distributed-benchmark.md.
func TestImbalance(t *testing.T) {
	layers := make([]int, 400)
	for i := range layers {
		layers[i] = i
	}
	var w strings.Builder
	tab := tabwriter.NewWriter(&w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tab, "experts\trows\tskew\tranks\tnone\ta quarter\tall\ta quarter, by row\t\n")
	for _, m := range []struct {
		experts, used int
		ranks         []int
	}{{256, 6, []int{2, 3, 4, 8}}, {256, 8, []int{2, 4, 8}}, {384, 8, []int{2, 4, 8}}, {384, 6, []int{2, 4, 8}}} {
		for _, rows := range []int{1, 8, 512} {
			for _, skew := range []float64{0, 0.8} {
				for _, ranks := range m.ranks {
					of := func(copied int, how assign.How) float64 {
						p, err := parallel.ByExperts(parallel.Sizes{Experts: m.experts}, slices.Repeat([]float64{1}, ranks))
						require.NoError(t, err)
						spread(p, m.experts, slices.Repeat([]int64{int64(copied)}, ranks))
						n := layers[:400/(1+rows/20)]
						return assign.Rule{By: p.Assigner(m.experts), How: how}.Expect(assign.Routing{Experts: m.experts, Used: m.used, Skew: skew}, rows, n).Busiest
					}
					none, quarter, all := of(0, assign.Owners), of(m.experts/4, assign.Together), of(m.experts, assign.Together)
					fmt.Fprintf(tab, "%d of %d\t%d\t%v\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", m.used, m.experts, rows, skew, ranks, none, quarter, all, of(m.experts/4, assign.ByRow))
					require.LessOrEqual(t, quarter, none+0.01)
					require.LessOrEqual(t, all, quarter+0.01)
					most := 1.05
					if whole := (m.used*rows + ranks - 1) / ranks * ranks; rows < 64 {
						most = max(most, float64(whole)/float64(m.used*rows)) // that many experts for the busiest
					}
					if rows == 8 {
						most += 0.1 // an expert that several rows choose
					}
					require.LessOrEqual(t, all, most, "%d ranks, %d rows, skew %v", ranks, rows, skew)
				}
			}
		}
	}
	require.NoError(t, tab.Flush())
	t.Log("\n" + w.String())
}
