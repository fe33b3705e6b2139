//go:build unix

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/safetext"
	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	return path
}

// fakePid returns the process id in the line "[RANK] pid PID args: ..." of a fake rank.
func fakePid(t *testing.T, line string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.Fields(line[strings.Index(line, "]"):])[2])
	require.NoError(t, err)
	return pid
}

// launch starts ringmaster launch and ends it with the test.
func launch(t *testing.T, env []string, args ...string) *harness.Process {
	t.Helper()
	p, err := harness.StartProcess(env, append([]string{program(t), "launch"}, args...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		if p.Running() { // the ranks are in groups of their own
			_ = p.Signal(syscall.SIGTERM)
			_ = p.Signal(syscall.SIGTERM)
			_ = p.Signal(syscall.SIGTERM)
		}
		ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
		defer cancel()
		_, err := p.Wait(ctx)
		p.End()
		require.NoError(t, err)
		if t.Failed() {
			t.Logf("launch:\n%s", p.Log)
		}
	})
	return p
}

// fakeHosts creates directories that stand for hosts, with their files, and returns
// the environment for the fake ssh.
func fakeHosts(t *testing.T, files map[string]string) []string {
	t.Helper()
	hosts := t.TempDir()
	for name, text := range files {
		path := filepath.Join(hosts, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return []string{"SSH=" + absolute(t, "testdata/fake/ssh.sh"), "HOSTS=" + hosts}
}

// TestLaunchChecks checks that problems of the hosts are reported before anything
// starts.
func TestLaunchChecks(t *testing.T) {
	fake := absolute(t, "testdata/fake/ringmaster.sh")
	for _, c := range []struct {
		name  string
		files map[string]string
		env   []string
		args  []string
		code  int
		text  string
	}{
		{"good", map[string]string{"a/m.gguf": "12345", "b/m.gguf": "54321", "a/key": "k", "b/key": "k"}, nil,
			[]string{"--model", "m.gguf", "--key-file", "key", "--coordinator", "192.0.2.7", "a", "b", "--", "--ctx", "512"}, 0,
			"rank 1 (b): '" + fake + "' 'serve' '--distributed' '--rank' '1' '--world-size' '2' '--coordinator' '192.0.2.7:32323' '--model' 'm.gguf' '--cluster-key-file' 'key' '--ctx' '512' '--connect-timeout' '24h'"},
		{"no host", nil, nil, nil, 2, "name the hosts by rank"},
		{"unreachable", nil, []string{"BROKEN=b"}, []string{"a", "b"}, 1, "rank 1 (b): ssh failed: ssh: connect to host b port 22: No route to host. Try:"},
		{"no program", nil, nil, []string{"--binary", "no-such-program", "a", "b"}, 1, "rank 0 (a): no-such-program not found; install it there"},
		{"not executable", map[string]string{"a/p": "", "b/p": ""}, nil, []string{"--binary", "./p", "a", "b"}, 1, "rank 0 (a): ./p is not executable"},
		{"versions", nil, []string{"VERSION_a=1", "VERSION_b=2"}, []string{"a", "b"}, 1,
			"rank 1 (b) has version ringmaster version 2, rank 0 (a) has ringmaster version 1; install the same everywhere"},
		{"no model", map[string]string{"a/m.gguf": "12345", "b/x": ""}, nil, []string{"--model", "m.gguf", "a", "b"}, 1, "rank 1 (b): model m.gguf is missing"},
		{"model cut short", map[string]string{"a/m.gguf": "12345", "b/m.gguf": "123"}, nil, []string{"--model", "m.gguf", "a", "b"}, 1,
			"model m.gguf has 3 bytes on rank 1 (b), 5 on rank 0 (a); copy it again"},
		{"a part is missing", map[string]string{"a/m-00001-of-00002.gguf": "1", "a/m-00002-of-00002.gguf": "22", "b/m-00001-of-00002.gguf": "1"}, nil,
			[]string{"--model", "m-00001-of-00002.gguf", "a", "b"}, 1, "has 1 bytes on rank 1 (b), 3 on rank 0 (a)"},
		{"keys", map[string]string{"a/key": "k", "b/key": "l"}, nil, []string{"--key-file", "key", "a", "b"}, 1,
			"key file key on rank 1 (b) differs from that of rank 0 (a)"},
		{"unknown option", nil, nil, []string{"--ctx", "512", "a", "b"}, 2, "unknown flag: --ctx; flags of every rank go after --"},
		{"an unset variable", nil, nil, []string{"--key-file", "", "a", "b"}, 2, "--key-file (or RINGMASTER_KEY_FILE) is empty"},
		{"local and hosts", nil, nil, []string{"--local", "2", "a"}, 2, "do not name hosts"},
		{"too many hosts", nil, nil, strings.Fields("a b c d e f g h i"), 2, "9 hosts; at most 8"},
		{"an option as a user", nil, nil, []string{"--user", "-oProxyCommand=touch x", "a", "b"}, 2, "--user needs a value, and -oProxyCommand=touch x is an option"},
		{"an option as a program", nil, nil, []string{"--binary", "-a", "a", "b"}, 2, "is an option"},
		{"a space in a host", nil, nil, []string{"a -oProxyCommand=x", "b"}, 2, "has a space"},
		{"an escape in a host", nil, nil, []string{"a\x1b[2J\u202e", "b"}, 2, "a host or a user begins with a dash"},
		{"no port", nil, nil, []string{"--coordinator-port", "99999", "a", "b"}, 2, `--coordinator-port is "99999"; expected a whole number from 1 to 65535`},
		{"errors of ssh", nil, []string{"BROKEN=b", "BECAUSE=\x1b]0;x\x07\u009b2J\u202eno \u2066route\r\u200f"}, []string{"a", "b"}, 1, "rank 1 (b): ssh failed: ]0;x2Jno route. Try:"},
		{"versions with escapes", nil, []string{"VERSION_a=1", "VERSION_b=\x1b[2J2\u202e"}, []string{"a", "b"}, 1, "rank 1 (b) has version ringmaster version [2J2, rank 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !slices.Contains([]string{"good", "keys", "no model", "an option as a user", "an escape in a host", "errors of ssh"}, c.name) {
				testenv.Need(t, testenv.Full, "launch with other mistakes")
			}
			t.Parallel()
			env := append(fakeHosts(t, c.files), c.env...)
			p := launch(t, env, append([]string{"--check", "--binary", fake}, c.args...)...)
			requireExitCode(t, p, c.code, c.text)
			requireShown(t, p.Log.String())
		})
	}
}

// requireShown fails if a text could control a terminal.
func requireShown(t *testing.T, text string) {
	t.Helper()
	require.NotContains(t, strings.ReplaceAll(text, "\r", ""), "\x1b")
	require.False(t, strings.ContainsFunc(text, safetext.Unsafe), "%q", text)
}

// TestLaunchNumbers: numbers are in base 10 even with leading zeros, and bounded.
func TestLaunchNumbers(t *testing.T) {
	fake := absolute(t, "testdata/fake/ringmaster.sh")
	check := func(code int, text string, args ...string) {
		t.Helper()
		p := launch(t, fakeHosts(t, nil), append([]string{"--check", "--binary", fake}, args...)...)
		requireExitCode(t, p, code, text)
	}
	check(0, "'--rank' '7' '--world-size' '8' '--coordinator' '127.0.0.1:89'", "--local", "08", "--coordinator-port", "089")
	for _, local := range []string{"9", "8x", "1000000000000000000000", "-1"} {
		if local == "9" || testenv.At(testenv.Full) {
			check(2, "--local", "--local", local)
		}
	}
}

// TestLaunchLogs: the output of a rank reaches the terminal without control sequences.
func TestLaunchLogs(t *testing.T) {
	p := launch(t, append(fakeHosts(t, nil), "SAYS=a\x1b[2J\u202eb\u009bc \u00e9\x9b\xc2\xe0\x80\x9b\xff\U0001f469\u200d\U0001f4bb\x07\ufffa\u180e\U000e0041\x84"), "--binary", absolute(t, "testdata/fake/ringmaster.sh"), "--local", "1")
	waitLine(t, p, 0, `^\[0\] says a\[2Jbc \x{e9}\x{1f469}\x{200d}\x{1f4bb}$`)
	requireShown(t, p.Log.String())
}

// TestLaunchEnds checks how launch stops the ranks, and its exit code.
func TestLaunchEnds(t *testing.T) {
	fake := absolute(t, "testdata/fake/ringmaster.sh")
	testenv.NeedTool(t, "script", "no script here (Debian: bsdutils), which gives a terminal")
	for _, where := range [][]string{{"--local", "3"}, {"--coordinator", "192.0.2.7", "a", "b", "c"}} {
		if where[0] != "--local" && !testenv.Rest(t, testenv.Full, "the end of ranks over ssh") {
			continue
		}
		args := append([]string{"--binary", fake}, where...)
		args = append(args, "--", "--words", "it's one $HOME word")
		start := func(t *testing.T, env ...string) (*harness.Process, []int) {
			p := launch(t, append(fakeHosts(t, nil), env...), args...)
			var pids []int
			for r := range 3 {
				line := waitLine(t, p, 0, `^\[`+strconv.Itoa(r)+`( \w)?\] pid \d+ args: `)
				require.Contains(t, line, "--rank "+strconv.Itoa(r)+" --world-size 3")
				require.Contains(t, line, "--words it's one $HOME word", "words stay whole")
				pids = append(pids, fakePid(t, line))
			}
			return p, pids
		}
		gone := func(t *testing.T, p *harness.Process, pids []int, code int) {
			t.Helper()
			require.Equal(t, code, exitCode(t, p), "%s", p.Log)
			for r, pid := range pids {
				require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "rank %d is left", r)
			}
		}
		t.Run(where[0]+" Ctrl-C", func(t *testing.T) {
			p, pids := start(t)
			require.NoError(t, p.Signal(syscall.SIGINT))
			gone(t, p, pids, 0)
			require.Equal(t, 3, strings.Count(p.Log.String(), "interrupted"), "%s", p.Log)
		})
		t.Run(where[0]+" exit code after Ctrl-C", func(t *testing.T) {
			p, pids := start(t, "END_CODE=9")
			require.NoError(t, p.Signal(syscall.SIGINT))
			gone(t, p, pids, 9)
		})
		t.Run(where[0]+" a rank fails", func(t *testing.T) {
			p, pids := start(t, "FAIL_CODE=7")
			require.NoError(t, syscall.Kill(pids[1], syscall.SIGUSR1))
			gone(t, p, pids, 7)
			require.Contains(t, p.Log.String(), "cannot continue")
			require.Regexp(t, `launch: rank 1( \(b\))? exited with code 7`, p.Log.String())
		})
		t.Run(where[0]+" a rank is killed", func(t *testing.T) {
			p, pids := start(t)
			require.NoError(t, syscall.Kill(pids[2], syscall.SIGKILL))
			t.Log(waitLine(t, p, 0, `rank 2( \(c\))? exited with code \d+; restarting it`))
			again := regexp.MustCompile(`^\[2( c)?\] pid \d+ args`)
			require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "the second start", func() (bool, string) {
				n := 0
				for line := range strings.Lines(p.Log.String()) {
					if again.MatchString(line) {
						n++
					}
				}
				return n == 2, strconv.Itoa(n) + " starts"
			}))
			require.NoError(t, p.Signal(syscall.SIGINT))
			gone(t, p, pids, 0)
		})
		t.Run(where[0]+" ranks die again and again", func(t *testing.T) {
			p, pids := start(t)
			// kill ends a rank and returns when the rank has been restarted after a pause.
			kill := func(rank, pause int, wait bool) {
				t.Helper()
				from := p.Log.Len()
				require.NoError(t, syscall.Kill(pids[rank], syscall.SIGKILL))
				waitLine(t, p, from, fmt.Sprintf(`rank %d( \(\w\))? exited with code \d+; restarting it in %d s`, rank, pause))
				if !wait {
					return
				}
				pids[rank] = fakePid(t, waitLine(t, p, from, fmt.Sprintf(`^\[%d( \w)?\] pid \d+ args`, rank)))
			}
			kill(2, 1, true)
			kill(0, 1, true)
			require.NoError(t, syscall.Kill(pids[1], syscall.SIGTERM))
			waitLine(t, p, 0, `launch: rank 1( \(b\))? left the group; the other ranks continue`)
			kill(2, 2, false) // Ctrl-C in the pause
			require.NoError(t, p.Signal(syscall.SIGINT))
			gone(t, p, pids, 0)
		})
		if where[0] == "--local" && testenv.Rest(t, testenv.Full, "a rank that was stable between two deaths") {
			t.Run(where[0]+" a stable rank", func(t *testing.T) {
				args := append([]string{"--stable-after", "1"}, args...)
				p := launch(t, fakeHosts(t, nil), args...)
				from := 0
				for range 3 {
					pid := fakePid(t, waitLine(t, p, from, `^\[2\] pid \d+ args`))
					ran := time.Now()
					require.NoError(t, harness.Until(testenv.Within(t, hangLimit), "a stable rank", func() (bool, string) { return time.Since(ran) > 2*time.Second, "" }))
					from = p.Log.Len()
					require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
					waitLine(t, p, from, `rank 2 exited with code \d+; restarting it in 1 s \(time 1 in a row\)`)
				}
				require.NoError(t, p.Signal(syscall.SIGINT))
				exitCode(t, p)
			})
		}
	}
}

// TestLaunchLocal runs the real program with --local.
func TestLaunchLocal(t *testing.T) {
	t.Parallel()
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)}) // for its addresses and answers
	host, port, err := net.SplitHostPort(b.Coordinator)
	require.NoError(t, err)
	p := launch(t, nil, "--binary", b.Program, "--model", b.Model, "--local", "2", "--coordinator-port", port, "--coordinator", host, "--listen", b.HTTP,
		"--", "--ctx", "8192", "--reduce", "exact", "--max-batch", "64", "--threads", "1", "--peer-timeout", "20s")
	b.checkLaunched(p, b.Coordinator, func() { // kill rank 1
		for _, pid := range processes(t, b.Program, "--rank 1 --world-size 2 --coordinator "+b.Coordinator) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	})
	for _, addr := range []string{b.Coordinator, b.HTTP} {
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err, "%s is still in use", addr)
		require.NoError(t, l.Close())
	}
}

// checkLaunched checks a cluster that launch has started: it answers, a rank is killed
// and restarted, it answers again, Ctrl-C stops all ranks. own is a text that only the
// command lines of its ranks have.
func (b *bed) checkLaunched(p *harness.Process, own string, kill func()) {
	t := b.t
	b.waitLaunched(p)
	b.requireAnswer(brief)
	if kill != nil {
		kill()
		waitLine(t, p, 0, `rank 1 exited with code 137; restarting it`)
		b.waitLaunched(p)
		b.requireAnswer(brief)
		// The leader dies: the others keep the model and follow its successor.
		from := p.Log.Len()
		for _, pid := range processes(t, b.Program, "--rank 0 --world-size 2 --coordinator "+b.Coordinator) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		waitLine(t, p, from, `rank 0 exited with code 137; restarting it in 1 s`)
		at := time.Now()
		b.waitLaunched(p)
		t.Logf("serving again %v after the leader's death, including 1 s that launch waited", time.Since(at).Round(time.Millisecond))
		b.requireAnswer(brief)
	}
	for _, line := range []string{`^\[0( \w)?\] .*ready`, `^\[1( \w)?\] .*joined the group`} {
		waitLine(t, p, 0, line)
	}
	require.Len(t, processes(t, b.Program, own), 2)
	at := time.Now()
	require.NoError(t, p.Signal(syscall.SIGINT))
	code := exitCode(t, p)
	t.Logf("launch and all ranks gone after %v", time.Since(at).Round(time.Millisecond))
	require.Zero(t, code, "%s", p.Log)
	require.Empty(t, processes(t, b.Program, own))
}

// waitLaunched waits until the cluster of launch is ready.
func (b *bed) waitLaunched(p *harness.Process) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, hangLimit)
	defer cancel()
	require.NoError(b.t, harness.Until(ctx, "the launched cluster to serve", func() (bool, string) {
		if !p.Running() {
			cancel()
		}
		return b.Client.Ready(ctx)
	}), "%s", p.Log)
}

// processes returns the ids of the running ranks of the program with a text in their command
// line.
func processes(t *testing.T, program, text string) []int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-eo", "pid=,args=").Output()
	if err != nil {
		t.Skipf("NOT CHECKED: no ps here: %v", err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(strings.TrimSpace(args), program+" serve ") && strings.Contains(args, text) {
			n, err := strconv.Atoi(pid)
			require.NoError(t, err)
			pids = append(pids, n)
		}
	}
	return pids
}

// TestLaunchHosts runs the real program on hosts that are network namespaces, over
// a fake ssh, and checks that launch finds the coordinator's address.
func TestLaunchHosts(t *testing.T) {
	testenv.Need(t, testenv.Full, "launch with hosts in network namespaces")
	t.Parallel()
	n := network(t, 2)
	testenv.NeedTool(t, "script", "no script here (Debian: bsdutils), which gives a terminal")
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Net: n})
	key := keyFile(t, "0123456789abcdef0123456789abcdef")
	env := []string{"SSH=" + absolute(t, "testdata/fake/ssh.sh"), "RINGS=" + n.Prefix()}
	p := launch(t, env, "--binary", b.Program, "--model", b.Model, "--key-file", key, "--user", "somebody", "0", "1",
		"--", "--ctx", "8192", "--reduce", "exact", "--max-batch", "64", "--threads", "1", "--peer-timeout", "20s")
	b.checkLaunched(p, key, nil) // other tests have processes with the same addresses
	require.Contains(t, p.Log.String(), "coordinator 10.77.0.1 on rank 0 (0): eth0, every host is on its network")
	for r := range 2 {
		left, err := n.Listening(t.Context(), r)
		require.NoError(t, err)
		require.Empty(t, left, "rank %d", r)
	}
}
