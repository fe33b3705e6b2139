//go:build unix

package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ringmaster/internal/testenv"
	"ringmaster/tests/cluster/harness"
)

// What a follower logs, as patterns for waitLog.
const (
	joined  = "joined the group"
	looking = "looking for the leader"
)

// requireExit waits until a process exits and requires exit code 1 and a text in
// its log.
func requireExit(t *testing.T, p *harness.Process, text string) {
	t.Helper()
	requireExitCode(t, p, 1, text)
}

// requireExitCode is requireExit with another exit code: 2 where the flags are wrong.
func requireExitCode(t *testing.T, p *harness.Process, want int, text string) {
	t.Helper()
	require.Equal(t, want, exitCode(t, p), "%s", p.Log)
	require.Contains(t, p.Log.String(), text)
}

// TestAnyOrder checks that ranks may start in any order, long before or after
// rank 0.
func TestAnyOrder(t *testing.T) {
	testenv.Need(t, testenv.Full, "ranks that start in any order")
	t.Parallel()
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel)})
	require.NoError(t, b.Start(2))
	b.waitLog(2, 0, looking) // it has tried for seconds
	require.NoError(t, b.Start(0))
	b.waitLog(2, 0, joined)
	ok, reason := b.Client.Ready(b.ctx)
	require.False(t, ok, "%s", reason)
	require.NoError(t, b.Start(1))
	b.ready()
	b.requireAnswer(brief)
}

// TestNeverJoined checks that rank 0 gives up and names the missing rank.
func TestNeverJoined(t *testing.T) {
	t.Parallel()
	b := newBed(t, harness.Options{Size: 3, Model: model(t, slowModel), Flags: []string{"--connect-timeout", "3s"}})
	require.NoError(t, b.Start(0, 1))
	requireExit(t, b.Rank(0), "rank 2 did not join within 3s")
	// Rank 1 learned that the group has ended, or lost its leader.
	exitCode(t, b.Rank(1))

	lonely := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Flags: []string{"--connect-timeout", "1s"}})
	require.NoError(t, lonely.Start(1))
	requireExit(t, lonely.Rank(1), "no leader at "+lonely.Coordinator)
}

// noKey stands for the name of a key's file in a rank's flags if the rank has none.
const noKey = "no key"

// TestRejectedRanks checks that a process that does not belong to the group is
// rejected with the reason, which rank 0 logs too, and that the group then forms
// with the right one.
func TestRejectedRanks(t *testing.T) {
	t.Parallel()
	key, wrong := keyFile(t, "0123456789abcdef0123456789abcdef"), keyFile(t, "fedcba9876543210fedcba9876543210")
	m, other := model(t, slowModel), model(t, otherModel)
	b := newBed(t, harness.Options{Size: 2, Model: m, Flags: []string{"--cluster-key-file", key}})
	require.NoError(t, b.Start(0))
	b.waitLog(0, 0, "waiting for the other ranks")

	for _, c := range []struct {
		name   string
		rank   string
		change []string // flags of the intruder; the last of two wins
		text   string   // in the log of the intruder
		leader string   // in the log of rank 0
	}{
		{"wrong key", "1", []string{"--cluster-key-file", wrong}, "key", "rejected"},
		{"only one encrypts", "1", []string{"--cluster-encrypt"}, "--cluster-encrypt to every rank, or to none", "rejected"},
		{"no key", "1", []string{"--cluster-key-file", noKey}, "key", "rejected"},
		{"an empty name for the key", "1", []string{"--cluster-key-file", ""}, "--cluster-key-file (or RINGMASTER_CLUSTER_KEY_FILE) is empty", ""},
		{"wrong model", "1", []string{"--model", other}, "other.gguf", "other.gguf"},
		{"other world size", "1", []string{"--world-size", "3"}, "world size: " + hostName(0) + " has 2, " + hostName(1) + " has 3", "world size: " + hostName(0) + " has 2, " + hostName(1) + " has 3"},
		{"a rank too many", "2", []string{"--world-size", "3"}, hostName(2) + ": followers of a group of 2 have ranks 1 to 1", hostName(2) + " at"},
		{"another zero", "0", nil, "address already in use", ""},
		{"other instructions", "1", []string{"--simd", "portable"}, "--simd", "kernels"},
		{"other activations", "1", []string{"--activations", "8"}, "--activations", "8-bit activations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "wrong key" && c.name != "wrong model" {
				testenv.Need(t, testenv.Full, "a rank that is rejected for another reason")
			}
			from := b.Rank(0).Log.Len()
			args := append(b.Args(1), append([]string{"--rank", c.rank}, c.change...)...)
			if i := slices.Index(args, noKey); i > 0 { // the flag cannot be taken back by another
				args = slices.DeleteFunc(args, func(a string) bool { return a == "--cluster-key-file" || a == key || a == noKey })
			}
			p := harness.Run(t, nil, args...)
			want := 1
			if strings.Contains(c.text, " is empty") {
				want = 2
			}
			requireExitCode(t, p, want, c.text)
			if c.leader != "" {
				t.Log(waitLine(t, b.Rank(0), from, regexp.QuoteMeta(c.leader)))
			}
			t.Log(lastLine(p))
			require.True(t, b.Rank(0).Running())
		})
	}
	require.NoError(t, b.Start(1))
	b.ready()
	b.requireAnswer(brief)

	// The same while the group is working, which is not disturbed.
	from := b.Rank(0).Log.Len()
	u := b.begin(phase{"decode", longAnswer})
	for _, c := range []struct {
		change []string
		text   string
	}{
		{nil, hostName(1) + " is taken"},
		{[]string{"--cluster-key-file", wrong}, "key"},
		{[]string{"--rank", "2", "--world-size", "3"}, "world size"},
	} {
		p := harness.Run(t, nil, append(b.Args(1), c.change...)...)
		requireExit(t, p, c.text)
		t.Log(lastLine(p))
	}
	b.waitLog(0, from, named(1)+" is taken")
	b.requireWhole(u, longAnswer)
	b.othersRun(-1)
}

func lastLine(p *harness.Process) string {
	lines := strings.Split(strings.TrimSpace(p.Log.String()), "\n")
	return lines[len(lines)-1]
}

func keyFile(t *testing.T, text string) string {
	path := testenv.WriteFile(t, filepath.Join(t.TempDir(), "key"), text)
	return path
}

// TestOtherWeights checks that a model with the same metadata but other weights is
// detected when the rank joins, by the sample or by --verify-model, and otherwise in the
// first step, before a token of it is sent.
func TestOtherWeights(t *testing.T) {
	t.Parallel()
	m, twin := model(t, slowModel), model(t, twinModel)
	t.Run("sampled", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, harness.Options{Size: 2, Model: m, RankFlags: map[int][]string{1: {"--model", model(t, strangeModel)}}})
		require.NoError(t, b.Start(0, 1))
		requireExit(t, b.Rank(1), "weights: "+hostName(0)+" has")
	})
	t.Run("verified", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, harness.Options{Size: 2, Model: m, Flags: []string{"--verify-model"}, RankFlags: map[int][]string{1: {"--model", twin}}})
		require.NoError(t, b.Start(0, 1))
		requireExit(t, b.Rank(1), "model content")
		t.Log(lastLine(b.Rank(1)))
		b.RankFlags = nil
		require.NoError(t, b.Start(1))
		b.ready()
		b.requireAnswer(brief)
	})
	for _, reduce := range []string{"sum", "exact"} {
		t.Run("not verified, "+reduce, func(t *testing.T) {
			if reduce == "sum" {
				testenv.Need(t, testenv.Full, "other weights with --reduce sum")
			}
			t.Parallel()
			b := formed(t, harness.Options{Size: 2, Model: m, Flags: []string{"--reduce", reduce},
				RankFlags: map[int][]string{1: {"--model", twin}}})
			a := b.complete(brief)
			require.NotNil(t, a.Err, "%d tokens of two models", len(a.Tokens))
			require.Empty(t, a.Tokens)
			require.Equal(t, http.StatusServiceUnavailable, a.Status)
			t.Log(a.Err.Message)
			requireRank(t, a.Err.Message, 1)
			require.Regexp(t, `layer \d+`, a.Err.Message)
			// The next request is refused at once, and rank 1 may return with the right model.
			ok, reason := b.Client.Ready(b.ctx)
			require.False(t, ok)
			require.Contains(t, reason, "which of them is wrong is not known")
			b.signal(1, syscall.SIGKILL)
			exitCode(t, b.Rank(1))
			b.RankFlags = nil
			require.NoError(t, b.Start(1))
			b.ready()
			if reduce == "exact" { // the expected answer is that of one rank
				b.requireAnswer(brief)
			}
		})
	}
}

// TestOtherProgram: a rank that runs another build of the same version is rejected, and both
// sides name the programs that they run.
func TestOtherProgram(t *testing.T) {
	t.Parallel()
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
	file := testenv.ReadFile(t, b.Program)
	other := filepath.Join(t.TempDir(), "ringmaster")
	require.NoError(t, os.WriteFile(other, append(file, 0), 0o700)) // as far as the version tells, the same
	require.NoError(t, b.Start(0))
	require.NoError(t, b.StartArgs(1, append([]string{other}, b.Args(1)[1:]...)))
	requireExit(t, b.Rank(1), "build: "+hostName(0)+" has")
	hash := sha256.Sum256(append(file, 0))
	for _, rank := range []int{0, 1} {
		b.waitLog(rank, 0, named(1)+" has .* with hash "+hex.EncodeToString(hash[:6])+"; .* copy one program file to every host")
	}
	require.NoError(t, b.Start(1))
	b.ready()
}

// TestOtherWeightsOnOneOfThree: a rank with other weights computes different results from the
// other two. It is named and excluded before a token is sent, and the answer is that of the
// others.
func TestOtherWeightsOnOneOfThree(t *testing.T) {
	testenv.Need(t, testenv.Full, "other weights on one of three ranks")
	t.Parallel()
	m, twin := model(t, slowModel), model(t, twinModel)
	b := formed(t, harness.Options{Size: 3, Model: m, RankFlags: map[int][]string{2: {"--model", twin}}})
	b.requireAnswer(brief)
	line := b.waitLog(0, 0, `epoch \d+ has ended: .*`)
	requireRank(t, line, 2)
	b.untilRanks(2)
}

// TestFaultsWhileForming injects faults into a rank that has joined, before the
// group is complete.
func TestFaultsWhileForming(t *testing.T) {
	rest := testenv.Rest(t, testenv.Full, "every other fault while the group forms")
	for i, f := range faults {
		if i > 0 && !rest {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			o := harness.Options{Size: 3, Model: model(t, slowModel), Flags: quick}
			if f.net {
				o.Net = network(t, 3)
			}
			b := newBed(t, o)
			require.NoError(t, b.Start(0, 1))
			b.waitLog(1, 0, joined)
			from := b.Rank(0).Log.Len()
			f.inject(b, 1)
			require.NoError(t, b.Start(2))
			b.waitLog(2, 0, joined)
			b.waitLog(0, from, named(1)+" at .* is gone")
			ok, reason := b.Client.Ready(b.ctx)
			require.False(t, ok)
			t.Logf("/readyz in the meantime: %s", reason)
			b.othersRun(1)
			f.repair(b, 1)
			b.ready()
			b.requireAnswer(brief)
			b.othersRun(-1)
		})
	}
}

// TestStoppedBeforeLeader checks that a rank that was stopped while it was looking
// for rank 0 joins later.
func TestStoppedBeforeLeader(t *testing.T) {
	testenv.Need(t, testenv.Full, "a rank stopped before the leader starts")
	t.Parallel()
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel)})
	require.NoError(t, b.Start(1))
	b.waitLog(1, 0, looking)
	b.signal(1, syscall.SIGSTOP)
	require.NoError(t, b.Start(0))
	b.waitLog(0, 0, "waiting for the other ranks")
	b.signal(1, syscall.SIGCONT)
	b.ready()
	b.requireAnswer(brief)
}

// TestLateRank checks that the others wait for a rank that starts seconds later.
func TestLateRank(t *testing.T) {
	testenv.Need(t, testenv.Full, "a rank that starts late")
	t.Parallel()
	b := newBed(t, harness.Options{Size: 2, Model: model(t, slowModel), Flags: quick})
	require.NoError(t, b.Start(0))
	wait := time.NewTimer(6 * time.Second) // longer than --peer-timeout
	<-wait.C
	require.True(t, b.Rank(0).Running())
	require.NoError(t, b.Start(1))
	b.ready()
	b.requireAnswer(brief)
}

// TestDataPort: two ranks on one host cannot share a port; of a range each takes its own.
func TestDataPort(t *testing.T) {
	t.Parallel()
	addr := testenv.LoopbackAddr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	one := newBed(t, harness.Options{Size: 2, Flags: []string{"--data-port", port}})
	require.NoError(t, one.Start(0))
	one.waitLog(0, 0, "waiting for the other ranks")
	require.NoError(t, one.Start(1))
	requireExit(t, one.Rank(1), "no port of --data-port "+port+" is free at 127.0.0.1")

	one.Close()
	first, err := strconv.Atoi(port)
	require.NoError(t, err)
	last := min(first+40, 65535)
	ranged := newBed(t, harness.Options{Size: 2, Flags: []string{"--data-port", fmt.Sprintf("%d-%d", max(last-40, 1), last)}})
	require.NoError(t, ranged.Start(0, 1))
	ranged.ready()
	where := regexp.MustCompile(`(?m)  \S+ 127\.0\.0\.1:(\d+)$`).FindAllStringSubmatch(ranged.Rank(0).Log.String(), -1)
	require.Len(t, where, 2, "the plan has both addresses: %s", ranged.Rank(0).Log)
	require.NotEqual(t, where[0], where[1])
	for _, w := range where {
		p, err := strconv.Atoi(w[1])
		require.NoError(t, err)
		require.True(t, p >= last-40 && p <= last, "port %d", p)
	}
}
