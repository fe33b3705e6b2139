package cluster

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// Networks that keep ranks from each other: what the logs say, on which rank, and that the
// group forms once the network is mended.

// sayWithin is how soon a person must read what is wrong.
const sayWithin = 6 * time.Second

// walled is a network with firewalls, or the test is skipped.
func walled(t *testing.T, size int) *harness.Net {
	t.Helper()
	if err := harness.FirewallAvailable(); err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	return network(t, size)
}

// onlyCoordinator drops everything that arrives but for the coordinator's port and what belongs to
// connections that the host made.
var onlyCoordinator = map[string][]string{"input": {"iif lo accept", "ct state established accept", "tcp dport 7070 accept", "drop"}}

// requireSaid requires that a rank's log says something from line from on.
func (b *bed) requireSaid(rank, from int, since time.Time, pattern string) string {
	b.t.Helper()
	line, err := b.Rank(rank).Log.Wait(within(b.t, hangLimit), from, regexp.MustCompile(pattern))
	require.NoError(b.t, err, "rank %d:\n%s", rank, b.Rank(rank).Log.String())
	logTime(b.t, fmt.Sprintf("rank %d said it", rank), sayWithin, time.Since(since))
	return line
}

// TestDataPortClosed: firewalls that let a rank's data connections through to no one. All
// ranks name the pair, the address, the error and the cure; the rank that is named is the one
// that no rank reaches.
func TestDataPortClosed(t *testing.T) {
	testenv.Need(t, testenv.Full, "firewalls between ranks")
	reject := map[string][]string{"input": {"tcp dport 7701 reject with icmpx admin-prohibited"}}
	reset := map[string][]string{"input": {"tcp dport 7701 reject with tcp reset"}}
	out := map[string][]string{"output": {"tcp dport 7701 drop"}}
	for _, c := range []struct {
		name    string
		size    int
		walls   map[int]map[string][]string
		prepare func(n *harness.Net) error
		verdict string
	}{
		{"rank 0 of two", 2, map[int]map[string][]string{0: onlyCoordinator}, nil,
			`rank 0: no rank reaches its data plane: rank 1 does not reach rank 0 at 10\.77\.0\.1:7701: .*timeout .*firewall on rank 0's host.* allow TCP to port 7701`},
		{"rank 0 of three", 3, map[int]map[string][]string{0: onlyCoordinator}, nil,
			`rank 0: no rank reaches its data plane: rank 1 does not reach rank 0 .*rank 2 does not reach rank 0 .*timeout`},
		{"rank 1 of three", 3, map[int]map[string][]string{1: onlyCoordinator}, nil,
			`rank 1 at 10\.77\.0\.2:\d+: no rank reaches its data plane: rank 2 does not reach rank 1 at 10\.77\.0\.2:7701: .*timeout .*allow TCP to port 7701`},
		{"all of three", 3, map[int]map[string][]string{0: onlyCoordinator, 1: onlyCoordinator, 2: onlyCoordinator}, nil,
			`rank 0: no rank reaches its data plane: rank 1 does not reach rank 0 .*; rank 2 does not reach rank 0 .*; rank 2 does not reach rank 1 `},
		{"rank 1 rejects", 3, map[int]map[string][]string{1: reject}, nil,
			`rank 1 at .*: no rank reaches its data plane: rank 2 does not reach rank 1 at 10\.77\.0\.2:7701: .*no route to host .*firewall`},
		{"rank 1 resets", 3, map[int]map[string][]string{1: reset}, nil,
			`rank 1 at .*: no rank reaches its data plane: rank 2 does not reach rank 1 at 10\.77\.0\.2:7701: .*connection refused .*firewall`},
		{"rank 2 reaches no one", 3, map[int]map[string][]string{2: out}, nil,
			`rank 2 at .*: did not connect to all ranks: rank 2 does not reach rank 0 at .*rank 2 does not reach rank 1 at `},
		{"rank 1 behind an address translation", 3,
			map[int]map[string][]string{1: {"postrouting": {"ip saddr 192.168.9.2 snat ip to 10.77.0.2"}}},
			func(n *harness.Net) error {
				if err := n.IP(1, "addr", "add", "192.168.9.2/32", "dev", "lo"); err != nil {
					return err
				}
				return n.IP(1, "route", "replace", "10.77.0.0/24", "dev", "eth0", "src", "192.168.9.2")
			},
			`rank 1 at 10\.77\.0\.2:\d+: no rank reaches its data plane: rank 2 does not reach rank 1 at 192\.168\.9\.2:7701: .*its data plane is at 192\.168\.9\.2, but it is seen at 10\.77\.0\.2: an address translation \(NAT\)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := walled(t, c.size)
			for rank, rules := range c.walls {
				require.NoError(t, n.Firewall(rank, rules))
			}
			if c.prepare != nil {
				require.NoError(t, c.prepare(n))
			}
			b := newBed(t, harness.Options{Size: c.size, Net: n, Flags: append([]string{"--data-port", "7701"}, quick...)})
			for r := range c.size {
				require.NoError(t, b.Start(r))
			}
			joined := b.requireSaid(0, 0, time.Now(), "all ranks have joined")
			since := time.Now()
			require.NotContains(t, joined, "WARN")
			for r := range c.size {
				b.requireSaid(r, 0, since, `(?i)warn.*(epoch 1 has ended: |epoch has ended.*)`+c.verdict)
			}
			if c.prepare != nil {
				return // another network is needed
			}
			for rank := range c.walls {
				require.NoError(t, n.Firewall(rank, nil))
			}
			b.ready()
		})
	}
}
