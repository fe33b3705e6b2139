package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReportsComeBeforeTheVerdict: the leader waits longer than its followers, because
// otherwise their exact errors would arrive too late.
func TestReportsComeBeforeTheVerdict(t *testing.T) {
	for _, peer := range []time.Duration{time.Millisecond, 4 * time.Second, time.Minute} {
		c := Config{PeerTimeout: peer}.withDefaults()
		require.GreaterOrEqual(t, c.connectVerdict(), c.connectLimit()+2*linkGrace)
	}
}

func TestTranslation(t *testing.T) {
	for _, same := range [][2]string{
		{"10.0.0.1:1", "10.0.0.1:2"}, {"[fe80::1%eth0]:1", "[fe80::1%en7]:2"}, {"[::ffff:10.0.0.1]:1", "10.0.0.1:2"}, {"", "10.0.0.1:2"}, {"name:1", "10.0.0.1:2"},
	} {
		require.Empty(t, translation(same[0], same[1]))
	}
	require.Contains(t, translation("192.168.0.2:1", "10.0.0.1:2"), "its data plane is at 192.168.0.2, but it is seen at 10.0.0.1: an address translation (NAT)")
}
