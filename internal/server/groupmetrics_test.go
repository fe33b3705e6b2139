package server

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestPopularQuarter(t *testing.T) {
	ratio, known := popularQuarter([]uint64{0, 0, 0, 0, 0, 0, 0, 0})
	require.False(t, known)
	require.Zero(t, ratio)
	ratio, known = popularQuarter([]uint64{1, 1, 1, 1, 1, 1, 1, 1})
	require.True(t, known)
	require.InDelta(t, 0.25, ratio, 1e-9)
	ratio, _ = popularQuarter([]uint64{0, 6, 0, 1, 0, 2, 0, 1})
	require.InDelta(t, 0.8, ratio, 1e-9)
}

// TestGroupMetricsAreDescribed: every metric of a group has a description, without which
// registering it would end the server.
func TestGroupMetricsAreDescribed(t *testing.T) {
	all := make(chan *prometheus.Desc, 100)
	newGroupMetrics(nil, nil).Describe(all)
	close(all)
	for d := range all {
		require.NotNil(t, d)
	}
}
