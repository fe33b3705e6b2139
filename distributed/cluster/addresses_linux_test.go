package cluster

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenLeaderOnAllInterfaces: the data plane of a leader that runs alone is where the rank
// that joins has reached it, before the rank tries it; a rank that returns finds it there. (On
// Linux every address of 127.0.0.0/8 is this host's.)
func TestOpenLeaderOnAllInterfaces(t *testing.T) {
	r := newRig(t, 8, []byte("a key of the cluster"))
	cfg := r.config(0, "0.0.0.0:0")
	transport := &oneAddress{Transport: cfg.Transport}
	cfg.Transport, cfg.OnLoss, cfg.Open = transport, Continue, true
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
	r.leader, r.lead, r.addr = l, lead.program, net.JoinHostPort("127.0.0.2", port)
	e := r.running(0)
	require.Equal(t, []int{0}, e.Members)
	for _, rank := range []int{1, 5} {
		f := r.follow(rank, nil)
		e = r.running(e.Number)
		require.Equal(t, []int{0, rank}, e.Members)
		require.NoError(t, r.do(e, "work"))
		host, _, err := net.SplitHostPort(lead.data)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.2", host)
		require.Len(t, l.Status().Ranks, rank+1)
		f.stop(context.Canceled)
		require.NoError(t, r.ended(f))
		e = r.running(e.Number)
	}
	require.Equal(t, []string{"127.0.0.1", "127.0.0.2"}, transport.hosts)
}
