package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// newcomer is three hosts on a network. Each has only what get.sh has installed, and /proc.
type newcomer struct {
	t     *testing.T
	net   *harness.Net
	roots []string // of their file systems
}

// newNewcomer installs what is served from a release by its get.sh on three hosts.
func newNewcomer(t *testing.T, release string) *newcomer {
	if err := harness.NetAvailable(); err != nil {
		t.Skip("NOT CHECKED: no networks of hosts: ", err)
	}
	n := &newcomer{t: t}
	var err error
	n.net, err = harness.NewNet(3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.net.Close()) })
	for range 3 {
		root := t.TempDir()
		get := exec.CommandContext(t.Context(), "sh", filepath.Join(release, "get.sh"))
		get.Env = append(os.Environ(), "PREFIX="+filepath.Join(root, "usr/local"))
		said, err := get.CombinedOutput()
		require.NoError(t, err, string(said))
		proc := filepath.Join(root, "proc")
		require.NoError(t, os.Mkdir(proc, 0o755))
		require.NoError(t, syscall.Mount("proc", proc, "proc", 0, ""))
		t.Cleanup(func() { require.NoError(t, syscall.Unmount(proc, syscall.MNT_DETACH)) })
		n.roots = append(n.roots, root)
	}
	return n
}

// run runs the installed program on a host.
func (n *newcomer) run(host int, args ...string) *harness.Process {
	n.t.Helper()
	argv := append([]string{"chroot", n.roots[host], "/usr/local/bin/ringmaster"}, args...)
	p := harness.Run(n.t, []string{"HOME=/root"}, n.net.Command(host, argv...)...)
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("host %d: %v\n%s", host, args, p.Log)
		}
	})
	return p
}

// finish waits until a program has ended, without an error.
func (n *newcomer) finish(p *harness.Process) {
	n.t.Helper()
	code, err := p.Wait(testenv.Within(n.t, 2*time.Minute))
	require.NoError(n.t, err)
	require.Zero(n.t, code, "%s", p.Log)
}

// untilRanks waits until the server of host 0 is ready with so many ranks.
func (n *newcomer) untilRanks(ranks int) {
	n.t.Helper()
	require.NoError(n.t, harness.NewClient("127.0.0.1:8080", n.net.Dialer(0)).UntilRanks(testenv.Within(n.t, 2*time.Minute), ranks))
}

// testGroup is the first hour of someone who has three hosts: get.sh on each, up on one, join
// on the others with the code that up shows and no address, and verify, which compares the
// answers of the three with those of the first alone.
func testGroup(t *testing.T, release string) {
	n := newNewcomer(t, release)
	leader := n.run(0, "up")
	line, err := leader.Log.Wait(testenv.Within(t, time.Minute), 0, regexp.MustCompile(`ringmaster join .*--code \S+`))
	require.NoError(t, err, "%s", leader.Log)
	code := regexp.MustCompile(`--code (\S+)`).FindStringSubmatch(line)[1]
	n.untilRanks(1)
	n.finish(n.run(0, "verify", "--url", "http://127.0.0.1:8080", "--tokens", "40", "--record", "/alone.json"))
	others := []*harness.Process{n.run(1, "join", "--code", code), n.run(2, "join", "--code", code)}
	n.untilRanks(3)
	compared := n.run(0, "verify", "--url", "http://127.0.0.1:8080", "--tokens", "40", "--recorded", "/alone.json")
	n.finish(compared)
	t.Logf("%s", compared.Log)
	require.NoError(t, leader.Signal(syscall.SIGINT))
	for _, p := range append(others, leader) {
		n.finish(p)
	}
}
