//go:build linux

package harness

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestNet checks that packets pass between hosts, except while the cable is cut.
func TestNet(t *testing.T) {
	if err := NetAvailable(); err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	n, err := NewNet(2)
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()

	// Commands run on the host of the rank.
	server := n.Command(1, "/bin/sh", "-c", "ip -o addr show dev eth0")
	out, err := exec.CommandContext(t.Context(), server[0], server[1:]...).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), n.Addr(1)+"/24")

	ctx := testenv.Within(t, 30*time.Second)
	refused := func(rank int) error {
		c, err := n.Dialer(0)(ctx, "tcp", net.JoinHostPort(n.Addr(rank), "9"))
		if err == nil {
			c.Close()
		}
		return err
	}
	// Nothing listens there: a refusal by the other host proves the connection.
	require.ErrorContains(t, refused(1), "connection refused")
	require.NoError(t, n.Down(1))
	require.NoError(t, n.Up(1))
	require.ErrorContains(t, refused(1), "connection refused")
	require.NoError(t, n.Partition(0, 1))
	brief, end := context.WithTimeout(ctx, 100*time.Millisecond)
	_, err = n.Dialer(0)(brief, "tcp", net.JoinHostPort(n.Addr(1), "9"))
	require.ErrorContains(t, err, "i/o timeout")
	end()
	require.NoError(t, n.Heal(0, 1))
	require.ErrorContains(t, refused(1), "connection refused")
	require.NoError(t, n.Slow(1, "1mbit"))
	tc, err := exec.CommandContext(t.Context(), "tc", "-n", n.host(1), "qdisc", "show", "dev", "eth0").Output()
	require.NoError(t, err)
	require.Contains(t, string(tc), "tbf")
	require.NoError(t, n.Fast(1))

	start := time.Now()
	require.ErrorContains(t, refused(1), "connection refused")
	direct := time.Since(start)
	require.NoError(t, n.Delay(1, 30*time.Millisecond))
	require.NoError(t, Until(ctx, "the delay to take effect", func() (bool, string) {
		err := refused(1)
		return strings.Contains(err.Error(), "refused"), err.Error()
	}))
	start = time.Now()
	require.ErrorContains(t, refused(1), "connection refused")
	require.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond, "round trip; without the delay %v", direct)

	require.NoError(t, n.Cut(1))
	short := testenv.Within(t, 300*time.Millisecond)
	_, err = n.Dialer(0)(short, "tcp", net.JoinHostPort(n.Addr(1), "9"))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "refused")
	require.NoError(t, n.Restore(1))
	require.NoError(t, Until(ctx, "the connection to be restored", func() (bool, string) {
		err := refused(1)
		return strings.Contains(err.Error(), "refused"), err.Error()
	}))
}
