//go:build unix

package cluster

import (
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// Groups of 'ringmaster up' and 'ringmaster join': no host is told a rank or a size.

// gathering is hosts, each with a cache directory of its own.
type gathering struct {
	t     *testing.T
	net   *harness.Net // nil: loopback
	cache []string     // by host
}

func newGathering(t *testing.T, net *harness.Net, hosts int) *gathering {
	program(t)
	g := &gathering{t: t, net: net}
	for range hosts {
		g.cache = append(g.cache, t.TempDir())
	}
	return g
}

// run runs the program on a host.
func (g *gathering) run(host int, args ...string) *harness.Process {
	g.t.Helper()
	env := []string{"XDG_CACHE_HOME=" + g.cache[host], "RINGMASTER_CONFIG=none"}
	argv := append([]string{program(g.t)}, args...)
	if g.net != nil {
		argv = g.net.Command(host, argv...)
	}
	p := harness.Run(g.t, env, argv...)
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Logf("%v\n%s", p.Args, p.Log)
		}
	})
	return p
}

// up leads a group on a host, and returns the code.
func (g *gathering) up(host int, args ...string) (p *harness.Process, code string) {
	g.t.Helper()
	p = g.run(host, append([]string{"up", "--threads", "1", "--share", "experts", "--peer-timeout", "2s"}, args...)...)
	return p, codeOf.FindStringSubmatch(g.wait(p, codeOf.String()))[1]
}

var codeOf = regexp.MustCompile(`ringmaster join .*--code (\S+)`)

// join joins a group from a host.
func (g *gathering) join(host int, args ...string) *harness.Process {
	g.t.Helper()
	return g.run(host, append([]string{"join", "--threads", "1"}, args...)...)
}

// wait waits until a process has said something.
func (g *gathering) wait(p *harness.Process, pattern string) string {
	g.t.Helper()
	line, err := p.Log.Wait(testenv.Within(g.t, hangLimit), 0, regexp.MustCompile(pattern))
	require.NoError(g.t, err, "%s\n%s", p.Args, p.Log)
	return line
}

// client talks with the server of a host in a namespace.
func (g *gathering) client(host int) *harness.Client {
	return harness.NewClient("127.0.0.1:8080", g.net.Dialer(host))
}

// untilRanks waits until an epoch of so many ranks runs.
func (g *gathering) untilRanks(c *harness.Client, ranks int) {
	g.t.Helper()
	require.NoError(g.t, c.UntilRanks(testenv.Within(g.t, hangLimit), ranks))
}

// tokens are those of an answer of the server.
func (g *gathering) tokens(c *harness.Client) (names []string) {
	g.t.Helper()
	a, err := c.Complete(testenv.Within(g.t, hangLimit), harness.Request{Prompt: []int32{1, 2, 3, 4, 5}, MaxTokens: 12})
	require.NoError(g.t, err)
	require.Empty(g.t, a.Err)
	for _, t := range a.Tokens {
		names = append(names, t.Name)
	}
	return names
}

// TestUpOnLoopback: a group by up and join on one host, that grows to three ranks and answers as
// one, with the settings of the first; a rank that leaves returns without the code.
func TestUpOnLoopback(t *testing.T) {
	t.Parallel()
	g := newGathering(t, nil, 3)
	var addrs []string
	for range 3 {
		a, err := testenv.FreeAddr("127.0.0.1")
		require.NoError(t, err)
		addrs = append(addrs, a)
	}
	leader, code := g.up(0, "--group", "studio", "--join-listen", addrs[0], "--coordinator", addrs[1], "--listen", addrs[2],
		"--reduce", "exact", "--activations", "8", "--cluster-encrypt")
	c := harness.NewClient(addrs[2], nil)
	g.untilRanks(c, 1)
	want := g.tokens(c)
	second := g.join(1, addrs[0], "--code", code)
	g.untilRanks(c, 2)
	require.Equal(t, want, g.tokens(c))
	other := g.join(2, addrs[0], "--code", code, "--activations", "15")
	require.Equal(t, 2, exitCode(t, other))
	require.Contains(t, other.Log.String(), "--activations is 15 here and 8 in the group; leave it out")
	third := g.join(2, addrs[0])
	g.untilRanks(c, 3)
	require.Equal(t, want, g.tokens(c))
	g.wait(leader, `Hosts: .*\(this host, rank 0\), .*\(rank 1, runs\), .*\(rank 2, runs\)`)

	require.NoError(t, second.Signal(syscall.SIGTERM))
	require.Zero(t, exitCode(t, second))
	g.untilRanks(c, 2)
	second = g.join(1, addrs[0])
	g.wait(second, `as rank 1\.`)
	g.untilRanks(c, 3)
	require.Equal(t, want, g.tokens(c))
	require.NoError(t, leader.Signal(syscall.SIGINT))
	for _, p := range []*harness.Process{leader, second, third} {
		require.Zero(t, exitCode(t, p), "%s", p.Log)
	}
}
