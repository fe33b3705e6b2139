package cluster

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/distributed"
)

// oneAddress is a transport that listens on one address, like that of package
// tcp, and records the addresses that it received.
type oneAddress struct {
	distributed.Transport
	mu    sync.Mutex
	hosts []string
}

func (o *oneAddress) Listen(host string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hosts = append(o.hosts, host)
	if a, err := netip.ParseAddr(host); err != nil || a.IsUnspecified() {
		return "", distributed.ErrConfig
	}
	return o.Transport.Listen(host)
}

// seesMembers is a program that records the leader's address from the last plan.
type seesMembers struct {
	*program
	data string
}

func (p *seesMembers) Plan(members []Hello) ([]byte, error) {
	p.data = members[0].Data
	return p.program.Plan(members)
}

// TestLeaderOnAllInterfaces: the data plane of a leader that listens on all
// interfaces is where the ranks have reached it.
func TestLeaderOnAllInterfaces(t *testing.T) {
	r := newRig(t, 2, []byte("a key of the cluster"))
	cfg := r.config(0, "0.0.0.0:0")
	transport := &oneAddress{Transport: cfg.Transport}
	cfg.Transport = transport
	lead := &seesMembers{program: &program{}}
	l, err := Lead(t.Context(), cfg, lead)
	require.NoError(t, err)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, l.Close(ctx, "the test is over"))
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	r.leader, r.lead, r.addr = l, lead.program, net.JoinHostPort("127.0.0.1", port)
	one := r.follow(1, nil)
	e := r.running(0)
	require.NoError(t, r.do(e, "work"))
	require.Equal(t, []string{"127.0.0.1"}, transport.hosts)
	host, _, err := net.SplitHostPort(lead.data)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
	// The next epoch uses the same address.
	one.stop(context.Canceled)
	require.NoError(t, r.ended(one))
	r.follow(1, nil)
	require.NoError(t, r.do(r.running(e.Number), "work"))
	require.Equal(t, []string{"127.0.0.1"}, transport.hosts)
}

func TestReachedByAll(t *testing.T) {
	require.Equal(t, "10.0.0.5", reachedByAll([]string{"127.0.0.1", "::1", "10.0.0.5", "10.0.1.5"}))
	require.Equal(t, "fe80::1%eth0", reachedByAll([]string{"::ffff:127.0.0.1", "fe80::1%eth0"}))
	require.Equal(t, "::1", reachedByAll([]string{"::1", "127.0.0.1"}))
	require.Equal(t, "127.0.0.1", reachedByAll(nil), "a group of one")
}

// TestZones: a zone names an interface of the host that wrote it.
func TestZones(t *testing.T) {
	theirs := []string{"[fe80::1%en5]:7000", "10.0.0.1:7001", "[fd00::1]:7002", "mpi:node7/3", "[fe80::2%en1]:7003"}
	local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[fe80::9%eth0]:5000"))
	require.Equal(t, []string{"[fe80::1%eth0]:7000", "10.0.0.1:7001", "[fd00::1]:7002", "mpi:node7/3", "[fe80::2%eth0]:7003"}, inZone(theirs, local))
	local = net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.2:5000"))
	require.Equal(t, theirs, inZone(theirs, local), "not known here")
}
