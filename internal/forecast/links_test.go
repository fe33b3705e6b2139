package forecast

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/groupplan"
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

// TestIslands: the hosts of one value of --host are an island, whose link is the first of two.
func TestIslands(t *testing.T) {
	l, err := ParseLinks("rdma+3GB/s,20us")
	require.NoError(t, err)
	require.Equal(t, "rdma+3GB/s,20us", l.String())
	var list []Hosts
	for _, v := range []string{"64GiB,x2", "64GiB,x3"} {
		h, err := ParseHosts(v)
		require.NoError(t, err)
		list = append(list, h)
	}
	hosts, err := expand(list)
	require.NoError(t, err)
	n := l.network(hosts)
	require.Equal(t, []int{0, 0, 1, 1, 1}, n.Islands)
	require.Equal(t, calibrate.Network{Latency: 10e-6, Rate: 6e9, Hops: 1}, *n.Inside)
	require.InDelta(t, 3e9, n.Rate, 1)
	o := Forecaster{Options: Options{Link: l}, hosts: hosts}
	require.Equal(t, []groupplan.Stages{{Count: 5}, {Count: 2, Ranks: []int{2, 3}}}, o.candidates())
	o.hosts = hosts[:2] // one island
	require.Equal(t, []groupplan.Stages{{Count: 2}}, o.candidates())
	one, err := ParseLinks("10g")
	require.NoError(t, err)
	require.Nil(t, one.Inside)
	for _, bad := range []string{"rdma+", "+1g", "rdma+1g+1g", "rdma+slow"} {
		_, err := ParseLinks(bad)
		require.ErrorContains(t, err, "expected rdma", bad)
	}
}
