//go:build cgo && (linux || darwin)

package rdma

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLostLinkWhileIdle: a link is lost while no operation runs. With a provider
// that ends the process in the next post (crash=1) nothing may be posted on its
// queue pairs any more: not when the group is closed, not in a bring-up that
// finds the port down, which leaves its rail out, nor when the port is up again.
// A post would end this test's process.
func TestLostLinkWhileIdle(t *testing.T) {
	x := group(t, ringOf(2, 2, "crash=1"), 2, nil)
	again := func(line string) {
		t.Helper()
		require.NoError(t, x.fabric.Script(line))
		for r, g := range x.groups {
			require.NoError(t, g.Close())
			x.links[r].Epoch++
		}
		succeed(t, x.connect(t.Context()))
		sums(t, x)
	}
	sums(t, x)
	again("port r1to0_1 down")
	for _, g := range x.groups {
		require.Equal(t, []string{"r0to1_0"}, cables(g)[0][1])
		require.Contains(t, strings.Join(g.Describe().Notes, "\n"), "rank 1 r1to0_1, listed for rank 0: its port is DOWN")
	}
	again("port r1to0_1 up")
	require.Equal(t, []string{"r0to1_0", "r0to1_1"}, cables(x.groups[0])[0][1])
	again("port r0to1_0 down")
	require.Equal(t, []string{"r0to1_1"}, cables(x.groups[1])[0][1])
}
