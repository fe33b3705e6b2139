package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
)

// TestUpAndJoin: three hosts on two networks, a slow one and a fast one, make a group without
// an address; the third has the slow one only, without multicast, and names the first host. They copy the
// model, use the fast network until the third joins, and answer as one host does. A stranger with a wrong code gets nothing. A
// host that is killed, and the first host itself, return without the code.
func TestUpAndJoin(t *testing.T) {
	testenv.Need(t, testenv.Full, "a group of three hosts by up and join")
	t.Parallel()
	g := newGathering(t, network(t, 4), 4) // host 3 is the stranger's
	for r := range 3 {
		require.NoError(t, g.net.Slow(r, "100mbit"))
	}
	require.NoError(t, g.net.Second(0))
	require.NoError(t, g.net.Second(1))
	require.NoError(t, g.net.IP(2, "link", "set", "eth0", "multicast", "off"))
	file := model(t, slowModel)
	leader, code := g.up(0, "--group", "studio", "--model", file, "--reduce", "exact")
	c := g.client(0)
	g.untilRanks(c, 1)
	want := g.tokens(c)

	second := g.join(1, "--code", code)
	g.wait(second, `Networks: .*10\.77\.0\.1 .*10\.78\.0\.1 [^;]*\(used, the fastest\)|Networks: .*10\.78\.0\.1 [^;]*\(used, the fastest\).*10\.77\.0\.1 `)
	g.wait(second, `Joined the group studio \([0-9a-f]{8}\) as rank 1\.`)
	g.untilRanks(c, 2)
	require.Equal(t, want, g.tokens(c))
	require.Equal(t, testenv.ReadFile(t, file), testenv.ReadFile(t, filepath.Join(g.cache[1], "ringmaster", "models", filepath.Base(file))))

	alone := g.join(2, "--code", code)
	require.Equal(t, 1, exitCode(t, alone))
	require.Contains(t, alone.Log.String(), "no group was found in 15s")
	require.Contains(t, alone.Log.String(), "ringmaster join HOST")
	third := g.join(2, g.net.Addr(0), "--code", code)
	g.wait(third, `Networks: 10\.77\.0\.1 [^;]*\(used, the fastest\); 10\.78\.0\.1 does not work`)
	g.wait(second, `INFO.*this rank starts again, because the group is elsewhere.*coordinator=10\.77\.0\.1:32323`)
	g.untilRanks(c, 3)
	require.Equal(t, want, g.tokens(c))
	g.wait(leader, `Hosts: .*rank 0\), .*\(rank 1, runs\), .*\(rank 2, runs\)`)

	wrong := strings.Map(func(r rune) rune {
		if r == '2' {
			return '3'
		}
		return map[bool]rune{true: '2', false: r}[r != '-']
	}, code)
	stranger := g.join(3, "--code", wrong)
	require.Equal(t, 1, exitCode(t, stranger))
	require.Contains(t, stranger.Log.String(), "the code is wrong")
	g.wait(leader, `WARN.*a host did not prove itself.*it does not have the code`)
	kept, err := os.ReadDir(g.cache[3])
	require.NoError(t, err)
	require.Empty(t, kept)

	require.NoError(t, second.Signal(syscall.SIGKILL))
	g.untilRanks(c, 2)
	back := g.join(1)
	g.wait(back, `as rank 1\.`)
	g.untilRanks(c, 3)
	require.Equal(t, want, g.tokens(c))

	require.NoError(t, leader.Signal(syscall.SIGKILL))
	require.NotZero(t, exitCode(t, leader))
	leader, _ = g.up(0, "--group", "studio", "--model", file, "--reduce", "exact")
	g.untilRanks(c, 3)
	require.Equal(t, want, g.tokens(c))
	require.NoError(t, leader.Signal(os.Interrupt.(syscall.Signal)))
	require.Zero(t, exitCode(t, back), "Ctrl-C at the first host ends all")
	require.Zero(t, exitCode(t, third))
}

// TestTwoGroups: of two groups on one network a host joins the one that it names, and only with
// that one's code.
func TestTwoGroups(t *testing.T) {
	testenv.Need(t, testenv.Full, "two groups by up on one network")
	t.Parallel()
	g := newGathering(t, network(t, 3), 3)
	_, studio := g.up(0, "--group", "studio")
	_, attic := g.up(1, "--group", "attic")
	for _, host := range []int{0, 1} {
		g.untilRanks(g.client(host), 1)
	}
	undecided := g.join(2, "--code", attic)
	require.Equal(t, 2, exitCode(t, undecided))
	require.Regexp(t, `several groups were found: (studio|attic) \([0-9a-f]{8}\), (studio|attic) \([0-9a-f]{8}\); say which with --group`, undecided.Log.String())
	mixed := g.join(2, "--group", "attic", "--code", studio)
	require.Equal(t, 1, exitCode(t, mixed))
	require.Contains(t, mixed.Log.String(), "the code is wrong")
	g.join(2, "--group", "attic", "--code", attic)
	g.untilRanks(g.client(1), 2)
	g.untilRanks(g.client(0), 1)
}
