package distributed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// TestRankName: errors name ranks with their hosts where these are known.
func TestRankName(t *testing.T) {
	require.Equal(t, "rank 2 (studio-b)", distributed.RankName(2, "studio-b"))
	require.Equal(t, "rank 2", distributed.RankName(2, ""))
	l := distributed.Link{Hosts: []string{"a", "b"}}
	require.Equal(t, []string{"rank 1 (b)", "rank 2", "rank -1"}, []string{l.Name(1), l.Name(2), l.Name(-1)})
	require.EqualError(t, &distributed.OpError{Op: "all_sum", Seq: 4, Rank: 0, Peer: 1, Addr: "node:9", World: []int{6, 2}, Hosts: []string{"a", "b"}, Err: distributed.ErrTimeout},
		"all_sum #4 on rank 0 (a) (world rank 6): rank 1 (b) (world rank 2) at node:9: deadline passed")
	require.EqualError(t, &distributed.PeerError{Rank: 1, Host: "b", Addr: "10.0.0.2:7", Cause: "connection closed"}, "rank 1 (b) at 10.0.0.2:7: connection closed")
}
