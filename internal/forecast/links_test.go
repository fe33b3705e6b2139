package forecast

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/model/calibrate"
)

// TestNetwork: more Macs than the ports of one allow form a ring.
func TestNetwork(t *testing.T) {
	rdma, err := ParseLink("rdma")
	require.NoError(t, err)
	hosts := func(values ...string) []Host {
		var list []Hosts
		for _, v := range values {
			h, err := ParseHosts(v)
			require.NoError(t, err)
			list = append(list, h)
		}
		all, err := expand(list)
		require.NoError(t, err)
		return all
	}
	require.Equal(t, calibrate.Network{Latency: 10e-6, Rate: 6e9, Hops: 1}, rdma.network(hosts("64GiB,x7")))
	require.Equal(t, calibrate.Network{Latency: 10e-6, Rate: 6e9, Hops: 4}, rdma.network(hosts("64GiB,x8")))
	other, err := ParseLink("3GB/s,20us")
	require.NoError(t, err)
	require.Equal(t, calibrate.Network{Latency: 20e-6, Rate: 3e9, Hops: 1}, other.network(hosts("64GiB,x8")))
	// A given wait overrides a Mac's default.
	for value, wait := range map[string]float64{"64GiB,mac": macWait, "64GiB": 0, "64GiB,wait=30us": 30e-6, "64GiB,mac,wait=0s": 0, "64GiB,mac,wait=15us": 15e-6} {
		require.InDelta(t, wait, hosts(value)[0].Wait, 1e-12, value)
	}
}
