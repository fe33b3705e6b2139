//go:build unix

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// The reports of the hosts are canned (testdata/rails/README.md); the real program
// finds the cables.

// railHosts creates the hosts a, b and c with the reports of three Macs and returns
// the environment of launch. The cables between a and b are crossed.
func railHosts(t *testing.T) []string {
	t.Helper()
	files := map[string]string{}
	for i, host := range []string{"a", "b", "c"} {
		text := testenv.ReadFile(t, fmt.Sprintf("testdata/rails/mac%d.json", i+1))
		files[host+"/rails.json"] = string(text)
	}
	return append(fakeHosts(t, files), "PROGRAM="+program(t), "HOME="+t.TempDir(), "XDG_CACHE_HOME=")
}

func replaceReport(t *testing.T, env []string, host, text string) {
	t.Helper()
	for _, v := range env {
		if hosts, ok := strings.CutPrefix(v, "HOSTS="); ok {
			require.NoError(t, os.WriteFile(filepath.Join(hosts, host, "rails.json"), []byte(text), 0o644))
		}
	}
}

// switchedReport is the report of a Linux host with a card on a switch.
func switchedReport(host string, last int) string {
	return fmt.Sprintf(`{
  "name": %q, "system": "linux",
  "devices": [{"name": "mlx5_0", "interface": "ib0", "state": "ACTIVE", "link": "InfiniBand", "addrs": ["10.9.0.%d/24"]}]
}`, host, last)
}

// crossed is the device matrix of the three hosts on one line.
const crossed = `[  [null, ["rdma_en3","rdma_en4"], "rdma_en5"],  [["rdma_en4","rdma_en3"], null, "rdma_en5"],  ["rdma_en3", "rdma_en4", null]]`

// TestLaunchRailsChecks checks the map that is shown before anything starts, and
// the errors.
func TestLaunchRailsChecks(t *testing.T) {
	fake := absolute(t, "testdata/fake/rails.sh")
	for _, c := range []struct {
		name   string
		change func(t *testing.T, env []string)
		env    []string
		args   []string
		code   int
		text   []string
	}{
		{"three Macs", nil, nil, []string{"--transport", "rdma", "a", "b", "c", "--", "--ctx", "512"}, 0, []string{
			"launch: RDMA cables:",
			"  rank 0 mac1 rdma_en3 (Thunderbolt 1) <-> rank 1 mac2 rdma_en4 (Thunderbolt 2), 80 Gb/s, by domain\n",
			"  rank 0 mac1 rdma_en4 (Thunderbolt 2) <-> rank 1 mac2 rdma_en3 (Thunderbolt 1), 80 Gb/s, by domain\n",
			"  mesh: all ranks are connected; 1 to 2 cables per pair\n",
			`  [["rdma_en4","rdma_en3"], null, "rdma_en5"]`,
			"rank 2 (c): 'env' 'JACCL_IBV_DEVICES=$HOME/.cache/ringmaster/matrix-",
			"'--world-size' '3' '--coordinator' '192.0.2.7:32323' '--transport' 'rdma' '--ctx' '512'",
		}},
		{"the order of the hosts is that of the ranks", nil, nil, []string{"--transport", "rdma", "b", "a"}, 0, []string{
			"  rank 0 mac2 rdma_en3 (Thunderbolt 1) <-> rank 1 mac1 rdma_en4 (Thunderbolt 2), 80 Gb/s, by domain\n",
			"note: rank 0 mac2 rdma_en5: no cable to another rank was found\n",
			`  [null, ["rdma_en3","rdma_en4"]]`,
		}},
		{"a ring is requested", nil, []string{"MLX_JACCL_RING=0"}, []string{"--transport", "rdma", "a", "c"}, 0, []string{
			"  ring: requested; 1 cable per pair\n", "'JACCL_RING=1'",
		}},
		{"not connected", func(t *testing.T, env []string) {
			replaceReport(t, env, "b", `{"name": "mac2", "system": "darwin", "devices": [], "notes": ["RDMA is disabled; start the Mac in Recovery"]}`)
		}, nil, []string{"--transport", "rdma", "a", "b", "c"}, 1, []string{
			"  note: rank 1 mac2: RDMA is disabled; start the Mac in Recovery\n",
			"the hosts are not connected for RDMA: neither a ring nor a mesh: rank 1 has cables to 0 others, and ranks 0 and 1 have no cable; join every rank",
			"--transport tcp needs no RDMA",
		}},
		{"one host twice", nil, nil, []string{"--transport", "rdma", "a", "b", "a"}, 1, []string{"rank 0 (mac1) and rank 2 (mac1) are the same host"}},
		{"one host", nil, nil, []string{"--transport", "rdma", "a"}, 2, []string{"--transport rdma needs two hosts or more"}},
		{"rails here fails", nil, []string{"NO_RAILS=c"}, []string{"--transport", "rdma", "a", "b", "c"}, 1, []string{"rank 2 (c): rails: error: something is broken"}},
		{"no report", func(t *testing.T, env []string) { replaceReport(t, env, "b", "{") }, nil, []string{"--transport", "rdma", "a", "b"}, 1,
			[]string{"rank 1 (b): rails: what the host says is not the output of ringmaster rails here --json"}},
		{"a switch without --switched", func(t *testing.T, env []string) {
			replaceReport(t, env, "a", switchedReport("one", 1))
			replaceReport(t, env, "b", switchedReport("two", 2))
		}, nil, []string{"--transport", "rdma", "a", "b"}, 1, []string{"if the ports are on a switch, use --switched"}},
		{"a switch", func(t *testing.T, env []string) {
			replaceReport(t, env, "a", switchedReport("one", 1))
			replaceReport(t, env, "b", switchedReport("two", 2))
		}, nil, []string{"--transport", "rdma", "--switched", "a", "b"}, 0, []string{"  rank 0 one mlx5_0 <-> rank 1 two mlx5_0, by order\n"}},
		{"a switch without RDMA", nil, nil, []string{"--switched", "a", "b"}, 2, []string{"--switched requires --transport rdma"}},
		{"another transport", nil, nil, []string{"--transport", "tcp", "a", "b"}, 0, []string{"rank 1 (b): '" + fake + "' 'serve'", "'--transport' 'tcp'"}},
		{"here", nil, []string{"RINGMASTER_VERBS_LIBRARY="}, []string{"--transport", "rdma", "--local", "2"}, 2,
			[]string{"--transport rdma does not work with --local: no cable connects this host to itself"}},
		{"here with another library", nil, []string{"RINGMASTER_VERBS_LIBRARY=/lib/x.so"}, []string{"--transport", "rdma", "--local", "2"}, 0, []string{"'--transport' 'rdma'"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "three Macs" && c.name != "not connected" {
				testenv.Need(t, testenv.Full, "launch with other rails")
			}
			t.Parallel()
			env := append(railHosts(t), c.env...)
			if c.change != nil {
				c.change(t, env)
			}
			p := launch(t, env, append([]string{"--check", "--binary", fake, "--coordinator", "192.0.2.7"}, c.args...)...)
			require.Equal(t, c.code, exitCode(t, p), "%s", p.Log)
			for _, s := range c.text {
				require.Contains(t, p.Log.String(), s)
			}
			for _, v := range env { // a check leaves nothing on the hosts
				if home, ok := strings.CutPrefix(v, "HOME="); ok {
					require.NoDirExists(t, filepath.Join(home, ".cache"))
				}
			}
		})
	}
}

// TestLaunchRails checks that every rank gets the device matrix, a restarted one
// too.
func TestLaunchRails(t *testing.T) {
	testenv.Need(t, testenv.Full, "launch with rails")
	testenv.NeedTool(t, "script", "no script here (Debian: bsdutils), which gives a terminal")
	env := railHosts(t)
	p := launch(t, env, "--binary", absolute(t, "testdata/fake/rails.sh"), "--coordinator", "192.0.2.7", "--transport", "rdma", "a", "b", "c")
	matrix := regexp.MustCompile(`^\[2 c\] ring no matrix (\S*/\.cache/ringmaster/matrix-\d+-\d+\.json) ` + regexp.QuoteMeta(crossed) + `$`)
	line := waitLine(t, p, 0, `^\[2 c\] pid \d+ args: .* --rank 2 --world-size 3 .* --transport rdma`)
	require.NoError(t, syscall.Kill(fakePid(t, line), syscall.SIGKILL))
	require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "the matrix of the second start", func() (bool, string) {
		n := 0
		for line := range strings.Lines(p.Log.String()) {
			if matrix.MatchString(strings.TrimSpace(line)) {
				n++
			}
		}
		return n == 2, p.Log.String()
	}))
	for r := range 2 {
		waitLine(t, p, 0, fmt.Sprintf(`^\[%d \w\] pid \d+ args: `, r))
		waitLine(t, p, 0, fmt.Sprintf(`^\[%d \w\] ring no matrix \S+ %s$`, r, regexp.QuoteMeta(crossed)))
	}
	require.NotContains(t, p.Log.String(), "two files")
	require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "the second start", func() (bool, string) {
		n := strings.Count(p.Log.String(), "[2 c] pid ")
		return n == 2, p.Log.String()
	}))
	require.NoError(t, p.Signal(syscall.SIGINT))
	require.Zero(t, exitCode(t, p), "%s", p.Log)
}
